"""The cache of binaries: one folder per release and platform, filled atomically under a lock.

A program is in the cache completely or not at all. What a killed process left unfinished is removed by the next one
that holds the lock.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpu_control_plane.local import disk
from gpu_control_plane.local.errors import NoSpace
from gpu_control_plane.local.folders import CACHE_VARIABLE
from gpu_control_plane.local.locks import exclusive
from gpu_control_plane.local.platforms import Platform
from gpu_control_plane.local.progress import Progress
from gpu_control_plane.local.versions import Release, release_of

_PARTIAL = ".partial-"


class Store:
    """The cache folder, as far as binaries are concerned."""

    def __init__(self, cache: Path, platform: Platform) -> None:
        self.folder = cache / "bin"
        self._platform = platform

    def release_folder(self, release: Release) -> Path:
        return self.folder / f"{release.name}-{release.version}-{self._platform}"

    def find(self, program: str) -> Path | None:
        path = self.release_folder(release_of(program)) / program
        return path if path.is_file() and path.stat().st_mode & 0o111 else None

    @contextlib.contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Hold the lock for installing."""
        with contextlib.ExitStack() as held:
            with self.room_for("the binaries", 0):
                self.folder.mkdir(parents=True, exist_ok=True)
                held.enter_context(exclusive(self.folder / ".lock", progress, "which is installing binaries"))
            for leftover in self.folder.glob(f"{_PARTIAL}*"):
                shutil.rmtree(leftover, ignore_errors=True)
            yield

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
        """Make `name` a symbolic link to `target`, unless it is a program of its own already."""
        path = self.release_folder(release) / name
        if not path.exists():
            replace_link(path, Path(target))

    def room_for(self, what: str, needed: int) -> contextlib.AbstractContextManager[None]:
        return disk.room_for(what, needed, self.folder, CACHE_VARIABLE)

    def no_space(self, what: str, needed: int) -> NoSpace:
        return disk.no_space(what, needed, self.folder, CACHE_VARIABLE)


def replace_link(path: Path, target: Path) -> None:
    """Point a symbolic link somewhere, atomically, whether or not it exists."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)
