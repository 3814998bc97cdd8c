"""A running demo that a real Prometheus scrapes: a control plane, our processes and kube-state-metrics, on loopback."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from monitoring.generate import RULES
from monitoring.promql import AGENT, CONTROLLER

from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.local.logs import tail
from gpu_control_plane.local.progress import Quiet
from monitoring.demo_scenario import NODES, play_scenario

AGENT_POD: Final = "gpu-control-plane-agent-x7k2p"

type Relabelings = Sequence[Mapping[str, object]]
"""As Prometheus writes them."""

_LOOPBACK: Final = "127.0.0.1"
_PORTS: Final = ("controller", "webhooks", "fleet", "agent", "console", "cards", "state", "telemetry", "prometheus")


class Sample(msgspec.Struct, frozen=True):
    """One answer of Prometheus."""

    labels: Mapping[str, str]
    value: float


class Demo:
    """The Prometheus of the demo, and the processes that it scrapes."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._ports = ports
        self._url = f"http://{_LOOPBACK}:{ports['prometheus']}/api/v1"

    def ask(self, expr: str) -> list[Sample]:
        """What the expression gives now."""
        found = self.get("query", query=expr)
        return [Sample(each["metric"], float(each["value"][1])) for each in found["result"]]

    def served(self, process: str) -> str:
        """What a process answers to a scrape."""
        url = f"http://{_LOOPBACK}:{self._ports[process]}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            text: bytes = answer.read()
        return text.decode()

    def get(self, path: str, **parameters: str) -> Any:
        url = f"{self._url}/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - our own server
            return json.load(answer)["data"]


class _Processes:
    """Programs that run beside the cluster and end with it."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self._folder = folder
        self._environ = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        tests = Path(__file__).parents[1]
        self._environ["PYTHONPATH"] = os.pathsep.join(map(str, (tests, tests.parent)))
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str | Path) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(command, env=self._environ, stdout=log, stderr=log)

    def end(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait(10)

    def troubles(self) -> str:
        return "\n".join(f"{name}: {tail(self._folder / f'{name}.log')}" for name in self._running)


@contextmanager
def running(folder: Path, prometheus: Path, relabelings: Relabelings) -> Iterator[Demo]:
    """The demo, once everything in it has happened. `relabelings` are those of the chart for the agents."""
    metrics = ensure_binaries(["kube-state-metrics"]).path("kube-state-metrics")
    with Cluster(folder / "cluster", ensure_binaries([*Component]), Settings(), Quiet()) as cluster:
        ports = _free_ports()
        processes = _Processes(folder, cluster.kubeconfig)
        try:
            install_crds(cluster.kubeconfig)
            _start_ours(processes, folder, cluster.kubeconfig, ports)
            processes.start(
                "kube-state-metrics",
                *(metrics, "--kubeconfig", cluster.kubeconfig, "--host", _LOOPBACK, "--port", str(ports["state"])),
                *("--telemetry-host", _LOOPBACK, "--telemetry-port", str(ports["telemetry"])),
                *("--resources", "nodes,pods,deployments,daemonsets"),
            )
            (folder / "prometheus.yaml").write_text(yaml.safe_dump(_configuration(ports, relabelings)))
            processes.start(
                "prometheus",
                *(prometheus, f"--config.file={folder / 'prometheus.yaml'}"),
                *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={_LOOPBACK}:{ports['prometheus']}"),
            )
            asyncio.run(_played(cluster.kubeconfig))
            yield Demo(ports)
        except Exception as error:
            error.add_note(processes.troubles())
            raise
        finally:
            processes.end()


def eventually[T](look: Callable[[], T], *, within: float = 90.0) -> T:
    """What `look` gives, as soon as that is something; what it gave last, when the time is up."""
    deadline = time.monotonic() + within
    while True:
        try:
            found = look()
        except OSError:  # Prometheus is starting
            if time.monotonic() > deadline:
                raise
        else:
            if found or time.monotonic() > deadline:
                return found
        time.sleep(0.3)


def _free_ports() -> dict[str, int]:
    """A port for each, chosen at once so that no two get the same."""
    with ExitStack() as stack:
        servers = {name: stack.enter_context(socket.create_server((_LOOPBACK, 0))) for name in _PORTS}
        return {name: int(server.getsockname()[1]) for name, server in servers.items()}


def _start_ours(processes: _Processes, folder: Path, kubeconfig: Path, ports: Mapping[str, int]) -> None:
    python = (sys.executable, "-m")
    processes.start(
        "controller",
        *(*python, "gpu_control_plane.controller", "--identity", "demo"),
        *("--status-host", _LOOPBACK, "--status-port", str(ports["controller"])),
        *("--webhooks", "webhooks", "--webhook-port", str(ports["webhooks"])),
    )
    processes.start("fleet", *python, "gpu_control_plane.agent", "--simulated", "--status-port", str(ports["fleet"]))
    processes.start(
        "agent",
        *(*python, "gpu_control_plane.agent", "--node", "elsewhere", "--hardware", "simulated"),
        *("--kubelet-folder", folder / "kubelet", "--cdi-folder", folder / "cdi", "--host-root", folder / "host"),
        *("--status-port", str(ports["agent"])),
    )
    processes.start(
        "console",
        *(*python, "gpu_control_plane.console", "--port", "0"),
        *("--status-host", _LOOPBACK, "--status-port", str(ports["console"])),
    )
    processes.start("cards", *python, "monitoring.card_exporter", kubeconfig, str(ports["cards"]), *NODES)


async def _played(kubeconfig: Path) -> None:
    async with Client(load_config(kubeconfig)) as client:
        await play_scenario(client)


def _configuration(ports: Mapping[str, int], relabelings: Relabelings) -> dict[str, Any]:
    """Scraped as the chart's monitors have it scraped, only more often.

    Agents come with what the Prometheus operator knows of their pods, for the chart's relabelings to work on.
    """
    targets = {
        CONTROLLER: ("controller",),
        "d8-gpu-operator/gpu-control-plane-agent": ("fleet", "cards"),
        "kube-state-metrics": ("state",),
    }
    pod = {
        "namespace": "d8-gpu-operator",
        "pod": AGENT_POD,
        "container": "agent",
        "__meta_kubernetes_pod_node_name": "w",
    }
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": job,
                "honor_labels": True,
                "static_configs": [
                    {
                        "targets": [f"{_LOOPBACK}:{ports[name]}" for name in names],
                        "labels": pod if job.endswith(AGENT) else {},
                    }
                ],
                "relabel_configs": list(relabelings) if job.endswith(AGENT) else [],
            }
            for job, names in targets.items()
        ],
    }
