"""The controller and the agents as sidecars of a local cluster."""

import sys
from pathlib import Path

from gpu_control_plane.installation.webhooks import install_webhooks
from gpu_control_plane.local.ports import LOOPBACK, free_port, is_free
from gpu_control_plane.local.sidecars import Sidecar, read_sidecars
from gpu_control_plane.rules.webhook_configuration import NAME as WEBHOOKS

# On loopback only, and on any free port, so that several local clusters can run at once.
_STATUS = ("--status-host", "127.0.0.1", "--status-port", "0")
_AGENT = (sys.executable, "-m", "gpu_control_plane.agent")

_CONTROLLER = (sys.executable, "-m", "gpu_control_plane.controller", *_STATUS, "--webhooks", WEBHOOKS)
_WEBHOOK_PORT = "--webhook-port"
_NAME = "controller"

AGENTS = Sidecar(name="agents", command=(*_AGENT, "--simulated"))


def sidecars(cluster: Path, real_nodes: dict[str, Path], *, running: bool) -> list[Sidecar]:
    """The controller, the agents of simulated nodes, and an agent for each real node, by a short path.

    `cluster` is the folder of the cluster, which was `running` before or not.
    """
    port = str(_webhook_port(cluster, running=running))
    controller = Sidecar(name=_NAME, command=(*_CONTROLLER, "--webhook-host", LOOPBACK, _WEBHOOK_PORT, port))
    return [controller, AGENTS, *(_agent(name, folder) for name, folder in real_nodes.items())]


def install_local_webhooks(kubeconfig: Path, started: list[Sidecar]) -> None:
    """Tell the API server where the controller among these sidecars serves its webhooks."""
    ports = (_port(sidecar) for sidecar in started)
    port = next(port for port in ports if port is not None)
    install_webhooks(kubeconfig, f"https://{LOOPBACK}:{port}")


def _webhook_port(cluster: Path, *, running: bool) -> int:
    """The port that the controller has, so that it is not started anew, or a free one."""
    known = read_sidecars(cluster).get(_NAME)
    port = _port(known) if known is not None else None
    return port if port is not None and (running or is_free(port)) else free_port()


def _port(sidecar: Sidecar) -> int | None:
    command = sidecar.command
    return int(command[command.index(_WEBHOOK_PORT) + 1]) if _WEBHOOK_PORT in command else None


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
