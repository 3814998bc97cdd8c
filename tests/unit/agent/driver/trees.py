"""Made-up driver installations: real ELF files with nothing in them but what a linker would read."""

import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

VERSION: Final = "580.159.04"
X86: Final = 62
ARM: Final = 183

SONAMES: Final = {
    "libcuda.so": "libcuda.so.1",
    "libnvidia-ml.so": "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-glcore.so": f"libnvidia-glcore.so.{VERSION}",
}
PROGRAMS: Final = ("nvidia-smi", "nvidia-debugdump")


def shared_library(soname: str | None, machine: int = X86, *, bits: int = 64) -> bytes:
    """The smallest file that is a shared library of this name."""
    strings = b"\0" + (soname or "").encode() + b"\0"
    headers = 64 + 2 * 56
    tags = [(14, 1)] if soname else []
    dynamic = b"".join(struct.pack("<qQ", *tag) for tag in (*tags, (5, 0x1000 + headers), (0, 0)))
    total = headers + len(strings) + len(dynamic)
    header = struct.pack(
        "<4sBBB9xHHIQQQIHHHHHH", b"\x7fELF", bits // 32, 1, 1, 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0x1000, 0x1000, total, total, 0x1000)
    at = headers + len(strings)
    pointer = struct.pack("<IIQQQQQQ", 2, 4, at, 0x1000 + at, 0x1000 + at, len(dynamic), len(dynamic), 8)
    return header + load + pointer + strings + dynamic


def ld_cache(paths: Iterable[str], before: bytes = b"") -> bytes:
    """An `ld.so.cache` listing these libraries; `before` is what older systems put in front."""
    listed = list(paths)
    at = 48 + 24 * len(listed)
    strings = b""
    entries = b""
    for path in listed:
        entries += struct.pack("<iIIIQ", 0x303, at + len(strings), at + len(strings), 0, 0)
        strings += path.encode() + b"\0"
    return before + struct.pack("<20sII20x", b"glibc-ld.so.cache1.1", len(listed), len(strings)) + entries + strings


class Tree:
    """A file system in the making."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def file(self, path: str, content: bytes = b"") -> Self:
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        self.at(path).write_bytes(content)
        return self

    def program(self, path: str) -> Self:
        self.file(path, b"#!/bin/sh\n")
        self.at(path).chmod(0o755)
        return self

    def socket(self, path: str) -> Self:
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(self.at(path), stat.S_IFSOCK | 0o666)
        return self

    def link(self, path: str, target: str) -> Self:
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        self.at(path).symlink_to(target)
        return self

    def driver(self, folder: str, version: str = VERSION, *, links: bool = True, machine: int = X86) -> Self:
        """The libraries of a driver, with the links a package would bring or, as single mounts do, without."""
        for name, soname in SONAMES.items():
            own = soname.replace(VERSION, version)
            self.file(f"{folder}/{name}.{version}", shared_library(own, machine))
            if links and own != f"{name}.{version}":
                self.link(f"{folder}/{own}", f"{name}.{version}")
        return self

    def programs(self, folder: str) -> Self:
        for name in PROGRAMS:
            self.program(f"{folder}/{name}")
        return self
