"""Archives that are the same bytes from the same files: sorted, owned by root, of the commit's time."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

_GZIP_LEVEL = 6


class File(msgspec.Struct, frozen=True):
    content: bytes
    program: bool = False


def pack(path: Path, files: Mapping[str, File], time: int) -> None:
    """Write a .tar.gz of these files."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, file in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(file.content), time, 0o755 if file.program else 0o644
            tar.addfile(entry, io.BytesIO(file.content))


def unpacked(path: Path) -> dict[str, File]:
    """The files of a .tar.gz."""
    with tarfile.open(path) as tar:
        return {
            entry.name: File(content.read(), program=bool(entry.mode & 0o100))
            for entry in tar
            if (content := tar.extractfile(entry)) is not None
        }


def folder_files(folder: Path) -> dict[str, File]:
    """The files below a folder."""
    return {
        path.relative_to(folder).as_posix(): File(path.read_bytes(), program=bool(path.stat().st_mode & 0o100))
        for path in folder.rglob("*")
        if path.is_file()
    }
