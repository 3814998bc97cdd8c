"""Our own processes as they run beside a local cluster."""

import sys

from gpu_control_plane.local.companions import Companion

# On this machine only, and on any free port: several local clusters must not get in each other's way.
_STATUS = ("--status-host", "127.0.0.1", "--status-port", "0")

CONTROLLER = Companion(name="controller", command=(sys.executable, "-m", "gpu_control_plane.controller", *_STATUS))
AGENTS = Companion(name="agents", command=(sys.executable, "-m", "gpu_control_plane.agent", "--simulated"))
COMPANIONS = (CONTROLLER, AGENTS)
