"""Waits for changes of a folder's entries through inotify instead of polling.

Only that something changed is reported, never what: the caller reads the folder, so that lost or merged notices do no
harm.
"""

import asyncio
import ctypes
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

_CREATE: Final = 0x100
_DELETE: Final = 0x200
_MOVED: Final = 0x40 | 0x80
_SELF_GONE: Final = 0x4 | 0x400 | 0x800
"""Changes of attributes, too: when a folder that is a mount point is removed, only its link count changes."""
_ONLY_FOLDERS: Final = 0x01000000
_BUFFER: Final = 64 * 1024

_libc: Final = ctypes.CDLL(None, use_errno=True)


class FolderChanges:
    """The changes of one folder."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self._folder = folder
        self._original = folder.stat()
        self._descriptor = descriptor
        self._changed = asyncio.Event()

    @property
    def gone(self) -> bool:
        """Whether the folder was removed. Another one in its place is not watched."""
        try:
            found = self._folder.stat()
        except FileNotFoundError:
            return True
        return not found.st_nlink or not os.path.samestat(found, self._original)

    async def next(self) -> None:
        """Return when an entry appeared or disappeared since the last call."""
        await self._changed.wait()
        self._changed.clear()

    def drain(self) -> None:
        """Read every notice from the kernel; the event loop calls this while there are any."""
        try:
            while os.read(self._descriptor, _BUFFER):
                self._changed.set()
        except BlockingIOError:
            return


@asynccontextmanager
async def changes(folder: Path) -> AsyncIterator[FolderChanges]:
    """Watch `folder`, which must exist, from now on."""
    descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise _failure(folder)
    loop = asyncio.get_running_loop()
    try:
        mask = _CREATE | _DELETE | _MOVED | _SELF_GONE | _ONLY_FOLDERS
        if _libc.inotify_add_watch(descriptor, os.fsencode(folder), mask) < 0:
            raise _failure(folder)
        watched = FolderChanges(folder, descriptor)
        loop.add_reader(descriptor, watched.drain)
        yield watched
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _failure(folder: Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"cannot watch the folder for changes: {os.strerror(number)}", str(folder))
