"""Replaces a file so that a crash leaves either the old one or the new one, with the permissions it had."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def read(path: Path) -> bytes | None:
    """The content; None when there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def replace(path: Path, content: bytes, *, new_mode: int = 0o644) -> None:
    """Replace the file by this content, or create it with this mode.

    A link stays a link: its target is replaced.
    """
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            _copy_permissions(target, stream.fileno(), new_mode)
            os.fsync(stream.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(target.parent)


def remove(path: Path, *, with_folder: bool = False) -> None:
    """Delete the file, and with `with_folder` its folder if that is empty then."""
    target = path.resolve()
    target.unlink(missing_ok=True)
    if with_folder:
        with suppress(OSError):
            target.parent.rmdir()


def _copy_permissions(target: Path, handle: int, new_mode: int) -> None:
    try:
        known = target.stat()
    except FileNotFoundError:
        os.fchmod(handle, new_mode)
        return
    os.fchmod(handle, known.st_mode & 0o7777)
    with suppress(PermissionError):
        os.fchown(handle, known.st_uid, known.st_gid)


def _sync(folder: Path) -> None:
    """Write the rename itself to disk, so that it survives a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
