"""What a program or library for Linux says about itself: its processor, and the libraries it asks for."""

import struct
from pathlib import Path

import msgspec

MACHINES = {62: "amd64", 183: "arm64"}
_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRINGS = 1, 5


class Elf(msgspec.Struct, frozen=True):
    architecture: str
    needed: tuple[str, ...]


def read_elf(path: Path) -> Elf | None:
    """None for a file that is neither program nor library."""
    content = path.read_bytes()
    if not content.startswith(_MAGIC):
        return None
    (machine,) = struct.unpack_from("<H", content, 18)
    (offset,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    segments = [struct.unpack_from("<IIQQQQ", content, offset + size * number) for number in range(count)]
    tags = [
        struct.unpack_from("<QQ", content, position)
        for kind, _, start, _, _, length in segments
        if kind == _DYNAMIC
        for position in range(start, start + length, 16)
    ]
    addresses = [value for tag, value in tags if tag == _STRINGS]
    strings = _place(segments, addresses[0]) if addresses else 0
    return Elf(MACHINES[machine], tuple(_text(content, strings + value) for tag, value in tags if tag == _NEEDED))


def _place(segments: list[tuple[int, ...]], address: int) -> int:
    """Where in the file something is that will be at this address in memory."""
    return next(
        start + address - place
        for kind, _, start, place, _, length in segments
        if kind == _LOAD and place <= address < place + length
    )


def _text(content: bytes, place: int) -> str:
    return content[place : content.index(b"\0", place)].decode()
