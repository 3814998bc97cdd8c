"""Reads two facts from a shared library's ELF headers: its soname, and its processor architecture.

The name of the file says neither: programs load `libcuda.so.580.159.04` as `libcuda.so.1`, the links that would tell
may be missing (container runtimes bind-mount single files), and there may be 32-bit libraries of the same name.
"""

import mmap
import struct
from pathlib import Path
from typing import Final

import msgspec

_MAGIC: Final = b"\x7fELF"
_LITTLE_64: Final = b"\x02\x01"
_HEADER: Final = struct.Struct("<16xHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_ENTRY: Final = struct.Struct("<qQ")
_LOAD: Final = 1
_DYNAMIC: Final = 2
_END: Final = 0
_STRINGS: Final = 5
_SONAME: Final = 14
_SHARED: Final = 3

_TRIPLETS: Final = {62: "x86_64-linux-gnu", 183: "aarch64-linux-gnu"}


class SharedLibrary(msgspec.Struct, frozen=True):
    """What the headers of a shared library say."""

    triplet: str
    """The processor, as Debian names folders, such as `x86_64-linux-gnu`."""
    soname: str | None
    """The name by which programs load it; a library that is only opened by its path has none."""


def read_library(path: Path) -> SharedLibrary | None:
    """What the file says; None if it is no 64-bit shared library of a supported processor."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(data)
    except (OSError, OverflowError, ValueError, struct.error):  # unreadable, empty or cut off
        return None


def _parse(data: mmap.mmap) -> SharedLibrary | None:
    if data[:4] != _MAGIC or data[4:6] != _LITTLE_64:
        return None
    kind, machine, _, _, segments_at, _, _, _, segment_size, segment_count, *_ = _HEADER.unpack_from(data)
    if kind != _SHARED or machine not in _TRIPLETS:
        return None
    segments = [_SEGMENT.unpack_from(data, segments_at + segment_size * number) for number in range(segment_count)]
    return SharedLibrary(_TRIPLETS[machine], _soname(data, segments))


def _soname(data: mmap.mmap, segments: list[tuple[int, ...]]) -> str | None:
    dynamic = next((segment for segment in segments if segment[0] == _DYNAMIC), None)
    if dynamic is None:
        return None
    entries: dict[int, int] = {}
    for at in range(dynamic[2], dynamic[2] + dynamic[5], _ENTRY.size):
        tag, value = _ENTRY.unpack_from(data, at)
        if tag == _END:
            break
        entries[tag] = value
    if _SONAME not in entries or _STRINGS not in entries:
        return None
    strings = _offset(entries[_STRINGS], segments)
    if strings is None:
        return None
    start = strings + entries[_SONAME]
    return data[start : data.find(b"\0", start)].decode(errors="replace")


def _offset(address: int, segments: list[tuple[int, ...]]) -> int | None:
    """The offset in the file of what is loaded at this address."""
    for kind, _, offset, start, _, size, *_ in segments:
        if kind == _LOAD and start <= address < start + size:
            return offset + address - start
    return None
