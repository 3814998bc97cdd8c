"""The controller and the agents as sidecars of a local cluster."""

import sys
from pathlib import Path

from gpu_control_plane.local.sidecars import Sidecar

# On loopback only, and on any free port, so that several local clusters can run at once.
_STATUS = ("--status-host", "127.0.0.1", "--status-port", "0")
_AGENT = (sys.executable, "-m", "gpu_control_plane.agent")

CONTROLLER = Sidecar(name="controller", command=(sys.executable, "-m", "gpu_control_plane.controller", *_STATUS))
AGENTS = Sidecar(name="agents", command=(*_AGENT, "--simulated"))
SIDECARS = (CONTROLLER, AGENTS)


def sidecars(real_nodes: dict[str, Path]) -> list[Sidecar]:
    """The controller, the agents of simulated nodes, and an agent for each real node, by a short path."""
    return [*SIDECARS, *(_agent(name, folder) for name, folder in real_nodes.items())]


def _agent(name: str, folder: Path) -> Sidecar:
    """The agent of a real node with simulated cards. It works on the node's folders from outside."""
    paths = {
        "--kubelet-folder": folder / "kubelet",
        "--cdi-folder": folder / "run" / "cdi",
        "--device-folder": folder.resolve() / "devices",  # containers use this path, too, and do not see the link
        "--validations": folder / "validations",
    }
    options = (part for option, path in paths.items() for part in (option, str(path)))
    command = (*_AGENT, "--node", name, "--hardware", "simulated", "--labels", *options)
    return Sidecar(name=f"agent-{name}", command=command)
