"""Turns a folder into a layer: byte-compiled, packed and compressed, the same bytes from the same files.

Runs as a program under the image's own Python, since bytecode and compression differ between releases of Python and
zlib; so it imports nothing but the standard library. Prints the SHA-256 of the layer before compression.
"""

import compileall
import contextlib
import gzip
import hashlib
import io
import py_compile
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

TIME = 315532800
"""1980-01-01: no particular day, and the first that every format can express."""
_FOR_ALL = {"tmp", "var/tmp"}


def main(root: Path, packed: Path) -> None:
    compile_all(root)
    digest = hashlib.sha256()
    with (
        packed.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as compressed,
        tarfile.open(fileobj=_Both(compressed, digest), mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for entry, path in entries(root):
            if entry.isreg():
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)
    sys.stdout.write(digest.hexdigest())


def compile_all(root: Path) -> None:
    """Bytecode that is taken without a look at its source: the files of an image do not change."""
    with contextlib.redirect_stdout(sys.stderr):
        done = compileall.compile_dir(
            root / "usr",
            quiet=1,
            stripdir=str(root),
            prependdir="/",
            limit_sl_dest=str(root),  # Debian links a module to /etc, which from here would be this machine's
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    if not done:
        sys.exit("Some files are not valid Python.")


def entries(root: Path) -> Iterator[tuple[tarfile.TarInfo, Path]]:
    """Everything below `root` by name, owned by root, executable or not, and without other privileges."""
    for path in sorted(root.rglob("*")):
        entry = tarfile.TarInfo(str(path.relative_to(root)))
        entry.mtime = TIME
        if path.is_symlink():
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
        elif path.is_dir():
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if entry.name in _FOR_ALL else 0o755
        else:
            entry.size = path.stat().st_size
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
        yield entry, path


class _Both(io.RawIOBase):
    """Writes to a file what it also takes the digest of."""

    def __init__(self, file: gzip.GzipFile, digest: "hashlib._Hash") -> None:
        self._file = file
        self._digest = digest

    def write(self, content: bytes) -> int:  # type: ignore[override]
        self._digest.update(content)
        return self._file.write(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
