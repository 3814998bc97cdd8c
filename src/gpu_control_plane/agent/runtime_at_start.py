"""Has the container runtime configured when the agent starts, or what was written taken back.

The command that people use does it, in a process of its own: in a container that process enters the host's file system,
which the agent must not. Nothing of it can keep the agent from starting.
"""

import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import structlog

_TIMEOUT_SECONDS: Final = 300.0
"""A runtime of a large node takes a while to restart."""

_log = structlog.get_logger(component="agent.runtimes")


def run_at_start(verb: str, options: Sequence[str]) -> str | None:
    """Run `set` or `undo`. A failure is logged, and returned as a sentence for the checks, which tell it with the
    node's status."""
    command = (sys.executable, "-P", "-m", "gpu_control_plane.agent.runtimes", verb, *options)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return _failed(verb, str(error))
    if done.returncode != 0:
        return _failed(verb, done.stderr.strip().removeprefix("Error: "))
    _log.info("container runtime configured" if verb == "set" else "container runtime restored", said=done.stdout)
    return None


def _failed(verb: str, why: str) -> str:
    _log.error(f"container runtime not {'configured' if verb == 'set' else 'restored'}", why=why)
    return why
