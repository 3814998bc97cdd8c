"""Running the node's own programs."""

import subprocess
from collections.abc import Sequence
from typing import Final

from gpu_control_plane.agent.runtimes.interface import RuntimeConfigError

_PATIENCE: Final = 60.0


def run(command: Sequence[str]) -> str:
    """What the command prints; the `Run` of a real node."""
    line = " ".join(command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeConfigError(f"`{line}` could not be run: {error}") from error
    if done.returncode != 0:
        raise RuntimeConfigError(f"`{line}` failed: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout
