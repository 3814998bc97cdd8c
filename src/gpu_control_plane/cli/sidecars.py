"""The controller and the agents as sidecars of a local cluster, and what watches them."""

import sys
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

_CONTROLLER = (sys.executable, "-m", "gpu_control_plane.controller", *_STATUS, "--webhooks", WEBHOOKS)
_WEBHOOK_PORT = "--webhook-port"
_NAME = "controller"

AGENTS = Sidecar(name="agents", command=(*_AGENT, "--simulated"))
_WATCHERS = (monitoring.PROMETHEUS, monitoring.GRAFANA)


class Monitoring(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look."""

    prometheus: str
    grafana: str | None
    dashboards: Path


def sidecars(cluster: str, real_nodes: dict[str, Path], *, running: bool) -> list[Sidecar]:
    """The controller, the agents of simulated nodes, and an agent for each real node, by a short path. In a monitored
    cluster each serves its metrics where Prometheus looks for them.

    `running` says whether the cluster was running before.
    """
    folder = cluster_folder(cluster)
    port = str(_webhook_port(folder, running=running))
    controller = Sidecar(name=_NAME, command=(*_CONTROLLER, "--webhook-host", LOOPBACK, _WEBHOOK_PORT, port))
    made = [controller, AGENTS, *(_agent(name, node) for name, node in real_nodes.items())]
    ports = monitoring.read_ports(folder)
    return [monitoring.serving_metrics(sidecar, ports.get(sidecar.name)) for sidecar in made]


def install_local_webhooks(kubeconfig: Path, started: list[Sidecar]) -> None:
    """Tell the API server where the controller among these sidecars serves its webhooks."""
    ports = (_port(sidecar) for sidecar in started)
    port = next(port for port in ports if port is not None)
    install_webhooks(kubeconfig, f"https://{LOOPBACK}:{port}")


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
