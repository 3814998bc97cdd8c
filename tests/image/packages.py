"""Small Debian packages for tests."""

import hashlib
import io
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from images.lock import Lock, Package

RESOLVED = datetime(2026, 11, 1, tzinfo=UTC)


def deb(name: str, files: Mapping[str, bytes], links: Mapping[str, str] | None = None, extra: str = "") -> bytes:
    """A package file with these files and symbolic links."""
    control = f"Package: {name}\nVersion: 1.0\nArchitecture: amd64\nMaintainer: tests\n{extra}Description: for tests\n"
    sums = "".join(f"{hashlib.md5(content).hexdigest()}  {path}\n" for path, content in files.items())  # noqa: S324 - dpkg's format
    return b"!<arch>\n" + b"".join(
        _member(part, content)
        for part, content in {
            "debian-binary": b"2.0\n",
            "control.tar.xz": _tar({"./control": control.encode(), "./md5sums": sums.encode()}, {}),
            "data.tar.xz": _tar({f"./{path}": content for path, content in files.items()}, links or {}),
        }.items()
    )


def lock_of(contents: Mapping[str, bytes]) -> Lock:
    """A record of these package files."""
    packages = tuple(
        Package(
            name=name,
            version="1.0",
            sha256=hashlib.sha256(content).hexdigest(),
            path=f"debian/pool/main/{name}_1.0_amd64.deb",
        )
        for name, content in contents.items()
    )
    return Lock(suite="trixie", architecture="amd64", resolved=RESOLVED, packages=packages)


def files_of(contents: Mapping[str, bytes], folder: Path) -> dict[Package, Path]:
    """The package files on disk, as the cache would have them."""
    found = {}
    for package in lock_of(contents).packages:
        found[package] = folder / f"{package.name}.deb"
        found[package].write_bytes(contents[package.name])
    return found


def _member(name: str, content: bytes) -> bytes:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
    return header.encode() + content + b"\n" * (len(content) % 2)


def _tar(files: Mapping[str, bytes], links: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o4755
            tar.addfile(entry, io.BytesIO(content))
        for path, target in links.items():
            entry = tarfile.TarInfo(f"./{path}")
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return packed.getvalue()
