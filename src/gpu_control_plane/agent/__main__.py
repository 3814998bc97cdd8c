"""`python -m gpu_control_plane.agent`: the agent of this node, those of all simulated nodes, or discovery alone.

An agent runs for months and reads its command line once. So that click does not stay in its memory, the process begins
anew, as `start`, with the options that were read; it keeps its number.
"""

import json
import os
import sys
from collections.abc import Sequence

from gpu_control_plane.agent.command_line import read_command_line

_START = "gpu_control_plane.agent.start"


def _interpreter(command: Sequence[str]) -> Sequence[str]:
    """How Python was called, up to what it was to run."""
    return (sys.executable, *command[1 : command.index("-m")]) if "-m" in command else (sys.executable,)


if __name__ == "__main__":
    options = json.dumps(read_command_line(sys.argv[1:]), default=str)
    os.execv(sys.executable, (*_interpreter(sys.orig_argv), "-m", _START, options))  # noqa: S606 - there is no shell
