"""Free disk space, and errors that say where there is too little of it."""

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from gpu_control_plane.local.errors import LocalError, NoSpace
from gpu_control_plane.local.progress import megabytes

_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNWRITABLE = (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EEXIST)


@contextlib.contextmanager
def room_for(what: str, needed: int, folder: Path, variable: str) -> Iterator[None]:
    """Raise `NoSpace` when a folder has too little room, before the work or when its disk fills up during it.

    `variable` is the environment variable by which people choose another folder.
    """
    if free_bytes(folder) < needed:
        raise no_space(what, needed, folder, variable)
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise no_space(what, needed, folder, variable) from error
        if error.errno in _UNWRITABLE:
            raise LocalError(
                f"The folder {folder} cannot be written: {error.strerror}."
                f" Choose another one with {variable}=/another/folder."
            ) from error
        raise


def no_space(what: str, needed: int, folder: Path, variable: str) -> NoSpace:
    wants = f"needs about {megabytes(needed)}" if needed else "needs more"
    return NoSpace(
        f"There is not enough room in {folder}: {what} {wants}, and {megabytes(free_bytes(folder))} are free."
        f" Make room there, or choose another folder with {variable}=/another/folder."
    )


def free_bytes(folder: Path) -> int:
    """The free room of a folder, which need not exist yet."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
