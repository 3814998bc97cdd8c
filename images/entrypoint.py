#!/usr/bin/python3 -P
"""The first program of every container of this image: its first argument says which process it is to be."""

import runpy
import sys

PROCESSES = {
    "agent": "gpu_control_plane.agent",
    "console": "gpu_control_plane.console",
    "controller": "gpu_control_plane.controller",
    "install-crds": "gpu_control_plane.installation.crds",
    "kubectl-gpu": "gpu_control_plane.cli",
    "uninstall": "gpu_control_plane.installation.uninstall",
}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else None
    if name not in PROCESSES:
        problem = f"There is no process {name!r} in this image" if name else "Say which process to run"
        sys.exit(f"error: {problem}. The first argument is one of: {', '.join(PROCESSES)}.")
    del sys.argv[1]
    runpy.run_module(PROCESSES[name], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
