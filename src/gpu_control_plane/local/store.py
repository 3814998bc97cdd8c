"""The cache of binaries: one folder per release and platform, filled atomically under a lock.

A program is either there and whole or not there. What a killed process left unfinished is swept away by the next
one that holds the lock.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpu_control_plane.local.errors import LocalError, NoSpace
from gpu_control_plane.local.folders import CACHE_VARIABLE
from gpu_control_plane.local.platforms import Platform
from gpu_control_plane.local.progress import Progress, megabytes
from gpu_control_plane.local.versions import Release, release_of

_PARTIAL = ".partial-"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Store:
    """The cache folder, as far as binaries are concerned."""

    def __init__(self, cache: Path, platform: Platform) -> None:
        self.folder = cache / "bin"
        self._platform = platform

    def release_folder(self, release: Release) -> Path:
        return self.folder / f"{release.name}-{release.version}-{self._platform}"

    def find(self, program: str) -> Path | None:
        path = self.release_folder(release_of(program)) / program
        return path if path.is_file() and os.access(path, os.X_OK) else None

    @contextlib.contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Hold the right to install. Waiting for another process is said once, with its number."""
        with self.room_for("the binaries", 0):
            self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._lock(descriptor, progress)
            for leftover in self.folder.glob(f"{_PARTIAL}*"):
                shutil.rmtree(leftover, ignore_errors=True)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int, progress: Progress) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            with progress.step(f"Waiting for process {holder}, which is installing binaries") as step:
                while True:
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        step.detail(f"in {self.folder}")
                        time.sleep(0.2)
        with contextlib.suppress(OSError):  # only a courtesy to whoever waits
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    @contextlib.contextmanager
    def partial(self) -> Iterator[Path]:
        """A folder for unfinished work, on the same disk as the finished, and gone afterwards."""
        with self.room_for("unfinished work", 0):
            folder = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self.folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def keep(self, finished: Path, release: Release, name: str) -> Path:
        """Move a finished file to its place, whole or not at all."""
        with self.room_for(name, finished.stat().st_size):
            finished.chmod(0o755)
            folder = self.release_folder(release)
            folder.mkdir(exist_ok=True)
            target = folder / name
            finished.replace(target)
        return target

    def link(self, release: Release, name: str, target: str) -> None:
        """Let `name` be another way to call `target`, unless it already is a program of its own."""
        path = self.release_folder(release) / name
        if not path.exists():
            replace_link(path, Path(target))

    @contextlib.contextmanager
    def room_for(self, what: str, needed: int) -> Iterator[None]:
        """Refuse early when there is too little room, and say it in words when the disk fills up on the way."""
        if needed and self._free() < needed:
            raise self.no_space(what, needed)
        try:
            yield
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise self.no_space(what, needed) from error
            if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EEXIST):
                raise LocalError(
                    f"The cache folder {self.folder} cannot be written: {error.strerror}. Choose another one with"
                    f" {CACHE_VARIABLE}=/another/folder."
                ) from error
            raise

    def no_space(self, what: str, needed: int) -> NoSpace:
        wants = f"needs about {megabytes(needed)}" if needed else "needs some"
        return NoSpace(
            f"There is not enough room in {self.folder}: {what} {wants} and {megabytes(self._free())} are free."
            f" Make room there, or choose another folder with {CACHE_VARIABLE}=/another/folder."
        )

    def _free(self) -> int:
        folder = self.folder
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free


def replace_link(path: Path, target: Path) -> None:
    """Point a symbolic link somewhere, atomically, whether or not it exists."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)
