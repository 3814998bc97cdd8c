"""The dynamic linker's own list of libraries, read without its program: a bare host or a driver image may have none."""

import struct
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

_MAGIC: Final = b"glibc-ld.so.cache1.1"
_HEADER: Final = struct.Struct("<20sII20x")
_ENTRY: Final = struct.Struct("<iIIIQ")


def cached_folders(data: bytes) -> tuple[PurePosixPath, ...]:
    """The folders of the libraries in an `ld.so.cache`, in its order; none of what cannot be understood.

    The format in use since glibc 2.32 stands alone; before, it follows an older one, so it is searched for.
    """
    return tuple(dict.fromkeys(PurePosixPath(path).parent for path in _paths(data)))


def _paths(data: bytes) -> Iterator[str]:
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + _HEADER.size:
        return
    _, count, _ = _HEADER.unpack_from(data, start)
    for number in range(count):
        at = start + _HEADER.size + _ENTRY.size * number
        if at + _ENTRY.size > len(data):
            return
        _, _, path, _, _ = _ENTRY.unpack_from(data, at)
        end = data.find(b"\0", start + path)
        if end > 0:
            yield data[start + path : end].decode(errors="replace")
