"""Which files of the container runtime hold entries of ours, by the logs that `runtimes` keeps of its edits.

The agent tells this for as long as there is something to undo. What edits the files it imports only to edit them.
"""

from pathlib import Path
from typing import Final

import msgspec

STATE: Final = Path("/var/lib/gpu-control-plane/runtimes")
"""Where on the host the logs are: they must outlive reboots and releases of the agent, or nothing could be undone."""


class _Log(msgspec.Struct):
    files: dict[str, msgspec.Raw] = {}


def edited_files(state: Path = STATE) -> tuple[str, ...]:
    """The files by their paths on the host. Raises OSError, or ValueError for a log that cannot be understood."""
    logs = sorted(state.glob("*.json"))
    return tuple(name for log in logs for name in msgspec.json.decode(log.read_bytes(), type=_Log).files)
