"""`python -m gpu_control_plane.local`: have every program of the local cluster in the cache, with progress shown."""

import sys

from gpu_control_plane.local import Component, LocalError, ensure_binaries
from gpu_control_plane.local.progress import Lines


def main() -> int:
    try:
        ensure_binaries([*Component, "kubectl"], Lines(sys.stderr))
    except LocalError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
