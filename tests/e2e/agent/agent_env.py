"""The agent on a real node: real kubelet, real containers, and cards that are harmless device files."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import msgspec

from blocking_wait import until
from e2e.cluster_env import ClusterEnv
from gpu_control_plane.agent.simulated.machine import HARDWARE, Machine, card_uuid, new_machine, write_machine
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import Assignment, GPUNodeState
from gpu_control_plane.api.identity import inventory_id
from gpu_control_plane.local.ports import free_port

PREFIX = "gpu.deckhouse.io"


class AgentEnv:
    """A cluster with cards in its node, and the agent and controllers as processes."""

    def __init__(self, cluster_env: ClusterEnv, cards: int = 2) -> None:
        self.cluster_env = cluster_env
        self.node = cluster_env.node
        self.devices = cluster_env.cluster.folder / "devices"
        self.machine = new_machine("H200-141", cards)
        self.agent: subprocess.Popen[bytes] | None = None
        self._controller: subprocess.Popen[bytes] | None = None
        self._port = free_port()
        self._logs = self.node.logs
        self._kubeconfig = cluster_env.cluster.folder / "kubeconfig.json"  # as in a pod: without PyYAML
        self._kubeconfig.write_bytes(
            msgspec.json.encode(msgspec.yaml.decode(cluster_env.cluster.kubeconfig.read_bytes()))
        )

    # Programs.

    def start_agent(self, *options: str) -> None:
        kubelet = self.node.device_plugins.parent
        self.agent = self._start(
            "agent",
            *("-m", "gpu_control_plane.agent", "--node", self.node.name, "--hardware", "simulated"),
            *("--kubelet-folder", str(kubelet), "--cdi-folder", str(self.node.cdi)),
            *(
                "--device-folder",
                str(self.devices),
                "--validations",
                str(self.cluster_env.cluster.folder / "validations"),
            ),
            *("--status-port", str(self._port)),
            *options,
        )

    def stop_agent(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self.agent is not None
        self.agent.send_signal(number)
        self.agent.wait(60)
        self.agent = None

    def start_controller(self, *options: str) -> None:
        self._controller = self._start(
            "controller",
            *("-m", "gpu_control_plane.controller", "--identity", "test", "--status-host", "127.0.0.1"),
            *("--status-port", "0", *options),
        )

    def close(self) -> None:
        for process in (self.agent, self._controller):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(10)

    def _start(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig)}
        with (self._logs / f"{name}.log").open("ab") as log:
            return subprocess.Popen([sys.executable, *arguments], env=environment, stdout=log, stderr=log)

    # Hardware.

    def card(self, index: int) -> str:
        """The name of a card's GPUDevice."""
        return str(inventory_id(self.node.name, self.machine.addresses[index]))

    def uuid(self, index: int) -> str:
        return card_uuid(self.node.name, self.machine.addresses[index], 0)

    def install(self, machine: Machine) -> None:
        """Make the node's hardware be this."""
        self.machine = machine
        self.cluster_env.kubectl(
            "annotate", "node", self.node.name, "--overwrite", f"{HARDWARE}={write_machine(machine)}"
        )

    # Orders.

    def order(self, *assignments: Assignment) -> None:
        """Give the node these orders and no others, as the pools would."""
        body = {"spec": {"assignments": [msgspec.to_builtins(order) for order in assignments]}}
        self.cluster_env.kubectl(
            "patch",
            "gpunodestate",
            self.node.name,
            "--type=merge",
            "--patch",
            json.dumps(body),
            "--field-manager=pools",
        )

    # What can be seen.

    def state(self) -> dict[str, Any]:
        return self.cluster_env.read(GPUNodeState.resource.path(name=self.node.name))

    def device(self, index: int) -> dict[str, Any]:
        return self.cluster_env.read(GPUDevice.resource.path(name=self.card(index)))

    def allocatable(self, resource: str) -> int:
        return int(self.cluster_env.node_object()["status"]["allocatable"].get(resource, "0"))

    def users(self, index: int) -> list[str]:
        return [user["pod"] for user in self.device(index).get("status", {}).get("usedBy", [])]

    def cards_in(self, pod: str) -> list[str]:
        """The cards that a container really sees, by their device files."""
        found = self.cluster_env.exec(pod, "sh", "-c", "ls /dev | grep -E '^nvidia[0-9]+$' || true")
        return found.split()

    def metrics(self) -> str:
        """Everything the agent measures. One that has just been started is given the time to answer."""
        answers: list[str] = []

        def asked() -> bool:
            address = f"http://127.0.0.1:{self._port}/metrics"
            with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=30) as answer:
                answers.append(answer.read().decode())
            return bool(answers)

        until(asked, within=90)
        return answers[0]

    def readiness(self) -> str:
        """What the agent says of its readiness; nothing before it answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as answer:
            return answer.read().decode()
        except OSError:
            return ""

    def admission_errors(self) -> float:
        """How many pods the kubelet has refused since it could not give them their devices, by its own count."""
        metrics = self.cluster_env.kubectl("get", "--raw", f"/api/v1/nodes/{self.node.name}/proxy/metrics")
        return sum(_values(metrics, ('kubelet_admission_rejections_total{reason="UnexpectedAdmissionError"}',)))

    def metric(self, name: str) -> float:
        """The sum of a metric of the agent over all labels."""
        return sum(_values(self.metrics(), (f"{name} ", f"{name}{{")))

    def writes(self) -> list[str]:
        """The agent's requests that changed something, by kind, with their numbers so far."""
        reads = ('verb="get"', 'verb="list"', 'verb="watch"')
        counted = [line for line in self.metrics().splitlines() if line.startswith("kube_api_requests_total{")]
        return [line for line in counted if not any(read in line for read in reads)]

    def last_xid(self, index: int) -> int | None:
        """The last error that the agent has told of a card, of whatever kind."""
        code: int | None = self.device(index).get("status", {}).get("telemetry", {}).get("lastXid")
        return code

    def listening(self, resource: str) -> bool:
        """Whether the kubelet hears what the agent says of a resource now. The Node may show what it heard before."""
        streams = _values(self.metrics(), (f'gpu_agent_plugin_streams{{resource="{resource}"}}',))
        return sum(streams) > 0

    def registrations(self) -> float:
        """How often the kubelet has taken a resource of this agent in."""
        return sum(
            float(line.rpartition(" ")[2])
            for line in self.metrics().splitlines()
            if line.startswith("gpu_agent_plugin_registrations_total{") and 'result="done"' in line
        )

    def wait_offered(self, resource: str, count: int, within: float = 90) -> None:
        """Until the Node has so many allocatable, and the kubelet has a device plugin to ask for them."""
        if count:
            until(lambda: self.listening(resource), within=within)
        until(lambda: self.allocatable(resource) == count, within=within)


@contextlib.contextmanager
def agent_env_on(
    cluster_env: ClusterEnv, *, without: tuple[str, ...] = (), agent: tuple[str, ...] = ()
) -> Iterator[AgentEnv]:
    """The agent and the controllers on a cluster, ready for orders or pools."""
    env = AgentEnv(cluster_env)
    try:
        env.install(env.machine)
        env.start_controller(*(f"--without={name}" for name in without))
        env.start_agent(*agent)
        until(lambda: cluster_env.find(GPUNodeState.resource.path(name=env.node.name)) is not None)
        until(lambda: _ready(env), within=90)
        yield env
    finally:
        env.close()


def _values(text: str, prefixes: tuple[str, ...]) -> list[float]:
    return [float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(prefixes)]


def _ready(env: AgentEnv) -> bool:
    conditions = env.state().get("status", {}).get("conditions", [])
    return any(each["type"] == "ReadyForPooling" and each["status"] == "True" for each in conditions)


def settle(seconds: float) -> None:
    """Give something that must not happen the time to happen."""
    time.sleep(seconds)
