"""Locks between processes that vanish with their holder, however it ends."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from gpu_control_plane.local.progress import Progress

_POLL_SECONDS = 0.1


@contextlib.contextmanager
def exclusive(path: Path, progress: Progress, waiting_for: str) -> Iterator[None]:
    """Hold a lock, waiting as long as it takes. Progress shows the PID of the process that holds it meanwhile."""
    descriptor = take(path)
    if descriptor is None:
        with progress.step(f"Waiting for process {owner(path) or 'unknown'}, {waiting_for}") as step:
            while (descriptor := take(path)) is None:
                step.detail(f"the lock is {path}")
                time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        os.close(descriptor)


def take(path: Path) -> int | None:
    """Acquire a lock at once or not at all; closing the returned descriptor releases it.

    The holder of a lock may remove its file: others then notice that they have opened another file.
    """
    descriptor = _open(path)
    if _try_lock(descriptor) and _is_at(path, descriptor):
        _write_pid(descriptor)
        return descriptor
    os.close(descriptor)
    return None


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def _write_pid(descriptor: int) -> None:
    # Only for those who wait for the lock: a full disk must not prevent taking it.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def owner(path: Path) -> int | None:
    """The process that holds a lock at this moment."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if _try_lock(descriptor):
            return None
        text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return int(text) if text.isdecimal() else None
    finally:
        os.close(descriptor)
