"""`python -m gpu_control_plane.local [--node]`: have the local cluster's programs in the cache, with progress shown.

With `--node` also those of a real node, where one can run.
"""

import sys

from gpu_control_plane.local import Component, LocalError, ensure_binaries
from gpu_control_plane.local.node.requirements import NodeImpossible, system_programs
from gpu_control_plane.local.progress import Lines
from gpu_control_plane.local.versions import NODE_PROGRAMS


def main(arguments: list[str]) -> int:
    programs, progress = [*Component, "kubectl"], Lines(sys.stderr)
    if "--node" in arguments:
        try:
            system_programs()
            programs += NODE_PROGRAMS
        except NodeImpossible as why:
            progress.note(f"Leaving out the programs of a real node. {why}")
    try:
        ensure_binaries(programs, progress)
    except LocalError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
