"""Our own processes as they run beside a local cluster."""

import sys
from pathlib import Path

from gpu_control_plane.local.companions import Companion

# On this machine only, and on any free port: several local clusters must not get in each other's way.
_STATUS = ("--status-host", "127.0.0.1", "--status-port", "0")
_AGENT = (sys.executable, "-m", "gpu_control_plane.agent")

CONTROLLER = Companion(name="controller", command=(sys.executable, "-m", "gpu_control_plane.controller", *_STATUS))
AGENTS = Companion(name="agents", command=(*_AGENT, "--simulated"))
COMPANIONS = (CONTROLLER, AGENTS)


def companions(real_nodes: dict[str, Path]) -> list[Companion]:
    """The controller, the agents of simulated nodes, and one for each real node, by a short way to its folder."""
    return [*COMPANIONS, *(_agent(name, folder) for name, folder in real_nodes.items())]


def _agent(name: str, folder: Path) -> Companion:
    """The agent of a real node, whose cards are pretended. It works on the node's folders from outside."""
    places = {
        "--kubelet-folder": folder / "kubelet",
        "--cdi-folder": folder / "run" / "cdi",
        "--device-folder": folder.resolve() / "devices",  # containers look for it too, and may not know the short way
        "--validations": folder / "validations",
    }
    options = (part for option, place in places.items() for part in (option, str(place)))
    command = (*_AGENT, "--node", name, "--hardware", "simulated", "--labels", *options)
    return Companion(name=f"agent-{name}", command=command)
