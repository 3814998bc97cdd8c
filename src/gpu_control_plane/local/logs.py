"""The end of a log, to show when something went wrong."""

import contextlib
from pathlib import Path

_LINES = 12
_BYTES = 64 * 1024


def tail(log: Path) -> str:
    with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(log.stat().st_size - _BYTES, 0))
        lines = file.read().decode(errors="replace").splitlines()[-_LINES:]
        return "\n".join(f"  {line}" for line in lines)
    return "  (nothing)"
