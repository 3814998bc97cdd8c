"""SHA256SUMS, as `sha256sum --check` reads it."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

NAME: Final = "SHA256SUMS"


def sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def checksums(artifacts: Iterable[Path]) -> str:
    return "".join(f"{sha256(path)}  {path.name}\n" for path in sorted(artifacts))


def remove_listed(folder: Path) -> None:
    """Remove the artifacts of the run before, which its list names, and nothing else that may lie there."""
    listed = folder / NAME
    if listed.exists():
        for line in listed.read_text().splitlines():
            (folder / Path(line.split(maxsplit=1)[1]).name).unlink(missing_ok=True)
        listed.unlink()
