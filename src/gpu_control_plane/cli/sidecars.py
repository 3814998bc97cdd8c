"""The controller, the agents and the console as sidecars of a local cluster, and what watches them."""

import sys
import time
from pathlib import Path

import msgspec

from gpu_control_plane.installation.webhooks import install_webhooks
from gpu_control_plane.local import monitoring
from gpu_control_plane.local.errors import LocalError
from gpu_control_plane.local.folders import cluster_folder
from gpu_control_plane.local.lifecycle import start_sidecar, stop_sidecar
from gpu_control_plane.local.ports import LOOPBACK, free_port, is_free, require_free
from gpu_control_plane.local.progress import Progress
from gpu_control_plane.local.sidecars import Sidecar, read_sidecars
from gpu_control_plane.rules.webhook_configuration import NAME as WEBHOOKS

# On loopback only, and on any free port, so that several local clusters can run at once.
_STATUS = ("--status-host", "127.0.0.1", "--status-port", "0")
_AGENT = (sys.executable, "-m", "gpu_control_plane.agent")

# The controller runs beside the cluster, where its names are not known: it reaches Ray through the API server.
_RAY = "--ray-use-kubernetes-proxy"
_CONTROLLER = (sys.executable, "-m", "gpu_control_plane.controller", *_STATUS, _RAY, "--webhooks", WEBHOOKS)
_WEBHOOK_PORT = "--webhook-port"
_NAME = "controller"

_CONSOLE_NAME = "console"
_CONSOLE = (sys.executable, "-m", "gpu_control_plane.console", *_STATUS, "--signed-in-as-kubeconfig")
_CONSOLE_PORT = "--port"
_ADDRESS_FILE = "console-address"
_CONSOLE_SECONDS = 15.0
_POLL_SECONDS = 0.1

AGENTS = Sidecar(name="agents", command=(*_AGENT, "--simulated"))
_WATCHERS = (monitoring.PROMETHEUS, monitoring.GRAFANA)


class Monitoring(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look."""

    prometheus: str
    grafana: str | None
    dashboards: Path


def sidecars(cluster: str, real_nodes: dict[str, Path], *, running: bool) -> list[Sidecar]:
    """The controller, the agents of simulated nodes, the console, and an agent for each real node, by a short path. In
    a monitored cluster each serves its metrics where Prometheus looks for them.

    `running` says whether the cluster was running before.
    """
    folder = cluster_folder(cluster)
    port = str(_kept_port(folder, _NAME, _WEBHOOK_PORT, running=running))
    controller = Sidecar(name=_NAME, command=(*_CONTROLLER, "--webhook-host", LOOPBACK, _WEBHOOK_PORT, port))
    made = [
        controller,
        AGENTS,
        _console(folder, running=running),
        *(_agent(name, node) for name, node in real_nodes.items()),
    ]
    ports = monitoring.read_ports(folder)
    return [monitoring.serving_metrics(sidecar, ports.get(sidecar.name)) for sidecar in made]


def install_local_webhooks(kubeconfig: Path, started: list[Sidecar]) -> None:
    """Tell the API server where the controller among these sidecars serves its webhooks."""
    ports = (_port(sidecar, _WEBHOOK_PORT) for sidecar in started)
    port = next(port for port in ports if port is not None)
    install_webhooks(kubeconfig, f"https://{LOOPBACK}:{port}")


def console_address(cluster: str) -> str | None:
    """The address that signs the owner of this machine's account in to the console, once; None if it is not running.
    The console writes a new one whenever it was used."""
    folder = cluster_folder(cluster)
    if _CONSOLE_NAME not in read_sidecars(folder):
        return None
    deadline = time.monotonic() + _CONSOLE_SECONDS
    while time.monotonic() < deadline:
        try:
            return (folder / _ADDRESS_FILE).read_text().strip()
        except FileNotFoundError:
            time.sleep(_POLL_SECONDS)
    return None


def start_monitoring(cluster: str, progress: Progress, *, port: int | None = None) -> Monitoring:
    """Have Prometheus, and Grafana where it is installed, watch the controller and the agents that run."""
    folder = cluster_folder(cluster)
    watched = {name: each for name, each in read_sidecars(folder).items() if name not in _WATCHERS}
    if _NAME not in watched:
        raise LocalError(f"There is no controller to watch. Start the cluster with `kubectl gpu up --name {cluster}`.")
    if port is not None and monitoring.read_ports(folder).get(monitoring.PROMETHEUS) != port:
        require_free(port, "Prometheus")
    ports = monitoring.choose_ports(folder, (*watched, *_WATCHERS), prometheus=port)
    prometheus, grafana = monitoring.prometheus(folder, ports), monitoring.grafana(folder, ports)
    for sidecar in watched.values():
        start_sidecar(cluster, monitoring.serving_metrics(sidecar, ports[sidecar.name]))
    for watcher in (prometheus, grafana):
        if watcher is not None:
            with progress.step(f"Starting {watcher.name}"):
                start_sidecar(cluster, watcher)
    return Monitoring(
        prometheus=f"http://{LOOPBACK}:{ports[monitoring.PROMETHEUS]}",
        grafana=f"http://{LOOPBACK}:{ports[monitoring.GRAFANA]}" if grafana is not None else None,
        dashboards=monitoring.CHART_FILES / "dashboards",
    )


def stop_monitoring(cluster: str) -> None:
    for watcher in _WATCHERS:
        stop_sidecar(cluster, watcher)
    monitoring.forget_ports(cluster_folder(cluster))


def _console(folder: Path, *, running: bool) -> Sidecar:
    """On the port that it had, so that bookmarks stay true. What it wrote before this cluster was up is not."""
    port = str(_kept_port(folder, _CONSOLE_NAME, _CONSOLE_PORT, running=running))
    file = folder / _ADDRESS_FILE
    if not running:
        file.unlink(missing_ok=True)
    return Sidecar(name=_CONSOLE_NAME, command=(*_CONSOLE, _CONSOLE_PORT, port, "--address-file", str(file)))


def _kept_port(cluster: Path, name: str, option: str, *, running: bool) -> int:
    """The port that a sidecar has, so that it is not started anew, or a free one."""
    known = read_sidecars(cluster).get(name)
    port = _port(known, option) if known is not None else None
    return port if port is not None and (running or is_free(port)) else free_port()


def _port(sidecar: Sidecar, option: str) -> int | None:
    command = sidecar.command
    return int(command[command.index(option) + 1]) if option in command else None


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
