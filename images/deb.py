"""Reading a Debian package file: an `ar` archive of two tars, one that describes and one that holds the files."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from images.errors import ImageError

_MAGIC = b"!<arch>\n"
_HEADER = 60
_FORMATS = (".xz", ".gz", ".bz2", "")


class Deb(msgspec.Struct, frozen=True, kw_only=True):
    """A package file, opened."""

    control: str
    """The package's own description, as `dpkg -s` would show it."""
    checksums: str
    """The MD5 sums that the package brings for `dpkg --verify`."""
    data: bytes

    def field(self, name: str) -> str:
        """One field of the description."""
        prefix = f"{name}:"
        return next(line.removeprefix(prefix).strip() for line in self.control.splitlines() if line.startswith(prefix))

    def unpack(self, root: Path, wanted: Callable[[str, bool], bool]) -> list[str]:
        """Unpack below `root` what is wanted, by its path and whether it is a link; the absolute paths of it."""
        with tarfile.open(fileobj=io.BytesIO(self.data)) as tar:
            chosen = {path: entry for entry in tar if wanted(path := _inside(entry), entry.issym())}
            tar.extractall(root, members=chosen.values(), filter="tar")
        return [f"/{path or '.'}" for path in chosen]


def read_deb(file: Path) -> Deb:
    members = _members(file)
    with tarfile.open(fileobj=io.BytesIO(_tar(members, "control", file))) as control:
        described = {entry.name.removeprefix("./"): _text(control, entry) for entry in control if entry.isfile()}
    return Deb(control=described["control"], checksums=described.get("md5sums", ""), data=_tar(members, "data", file))


def _members(file: Path) -> dict[str, bytes]:
    content = file.read_bytes()
    if not content.startswith(_MAGIC):
        raise ImageError(f"{file} is not a Debian package.")
    members, position = {}, len(_MAGIC)
    while position + _HEADER <= len(content):
        header = content[position : position + _HEADER]
        name, size = header[:16].decode().strip().rstrip("/"), int(header[48:58])
        position += _HEADER
        members[name] = content[position : position + size]
        position += size + size % 2
    return members


def _tar(members: dict[str, bytes], part: str, file: Path) -> bytes:
    for suffix in _FORMATS:
        if (name := f"{part}.tar{suffix}") in members:
            return members[name]
    raise ImageError(f"{file} is compressed in a way that Python cannot read: it holds {', '.join(members)}.")


def _inside(entry: tarfile.TarInfo) -> str:
    """Where an entry goes below the root, which itself is called `./` and comes out empty."""
    return entry.name.removeprefix(".").strip("/")


def _text(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> str:
    file = tar.extractfile(entry)
    return file.read().decode() if file else ""
