"""A cluster with a simulated fleet, as its tests act on it: orders, pods and what has become of them."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.agent.fleet.machines import add_nodes, node_manifest
from gpu_control_plane.agent.simulated.machine import HARDWARE, new_machine, slow_down
from gpu_control_plane.agent.simulated.models import pci_address
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api import GPUDevice, GPUNodeState, inventory_id
from gpu_control_plane.api.gpunodestate import Assignment, PluginResource
from gpu_control_plane.api.nodefeature import NodeFeature, feature_name
from gpu_control_plane.kube import Client, Object, Resource
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.errors import Forbidden, NotFound
from gpu_control_plane.kube.objects import Condition, FieldManager
from unit.agent.step.builders import exclusive
from waiting import until_async

TRAINING = "gpu.deckhouse.io/training"
NOTEBOOKS = "gpu.example.com/notebooks"


class PodStatus(Object, frozen=True):
    """A pod as tests look at it."""

    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    @property
    def phase(self) -> str:
        return str(self.status.get("phase"))


class Fleet:
    """The fleet as a process that can be killed."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self._kubeconfig = kubeconfig
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None:
            return
        command = [
            sys.executable,
            "-m",
            "gpu_control_plane.agent",
            "--simulated",
            "--timing",
            "health.recoveryPeriod=2s",
        ]
        with self._log.open("ab") as log:
            environ = {**os.environ, "KUBECONFIG": str(self._kubeconfig)}
            self._process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def log(self) -> str:
        return self._log.read_text()

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None


class FleetEnv:
    """One simulated node of a test, and the cluster around it."""

    def __init__(self, client: Client, node: str, namespace: str) -> None:
        self.client = client
        self.node = node
        self.namespace = namespace

    async def add_node(self, cards: int, profile: str = "H200-141", *, slow: float = 0.0) -> None:
        """The node, which may be slow by some seconds from the first, and what inventory would make of it."""
        await add_nodes(self.client, [self.node], slow_down(new_machine(profile, cards), slow))
        await self.client.create(GPUNodeState, {"metadata": {"name": self.node}})
        for index in range(cards):
            spec = {"nodeName": self.node, "pciAddress": pci_address(index)}
            await self.client.create(GPUDevice, {"metadata": {"name": self.card(index)}, "spec": spec})

    async def add_plain_node(self, resources: dict[str, str]) -> None:
        """A simulated node without cards, with resources that somebody wrote into it."""
        manifest = node_manifest(self.node, new_machine("L40S", 1))
        metadata, status = manifest["metadata"], manifest["status"]
        assert isinstance(metadata, dict)
        assert isinstance(status, dict)
        del metadata["annotations"][HARDWARE]
        for field in ("capacity", "allocatable"):
            status[field] = {**status[field], **resources}
        await self.client.create(NodeView, manifest)

    def card(self, index: int) -> str:
        return inventory_id(self.node, pci_address(index))

    async def order(self, orders: dict[int, str]) -> int:
        """Order whole cards into resources, as pools would; returns the generation of the orders."""
        return await self.assign(*(exclusive(self.card(index), resource) for index, resource in orders.items()))

    async def assign(self, *orders: Assignment) -> int:
        """Give the node these orders; returns their generation."""
        body = {"spec": {"assignments": msgspec.to_builtins(orders)}}
        state = await self.client.apply(GPUNodeState, self.node, body, manager=FieldManager("pools"))
        return state.metadata.generation

    async def plugin(self, generation: int) -> dict[str, PluginResource] | None:
        """The answer to these orders; None while there is none."""
        plugin = (await self.client.get(GPUNodeState, self.node)).status.plugin
        if plugin is None or plugin.observed_generation != generation:
            return None
        return {resource.name: resource for resource in plugin.resources}

    async def answered(self, generation: int, **expected: tuple[str, list[int], int]) -> None:
        """Wait until the answer lists these resources: each by name, cards and how many are healthy."""
        wanted = {name: (sorted(map(self.card, cards)), healthy) for name, cards, healthy in expected.values()}

        async def agrees() -> bool:
            plugin = await self.plugin(generation)
            return plugin is not None and wanted == {
                name: (list(each.inventory_ids), each.healthy) for name, each in plugin.items()
            }

        await until_async(agrees, saying=f"{expected} in the plugin's answer")

    async def allocatable(self, resource: str) -> tuple[str | None, str | None]:
        """Capacity and allocatable of the node."""
        status = (await self.client.get(NodeView, self.node)).status
        return status.capacity.get(resource), status.allocatable.get(resource)

    async def offers(self, resource: str, capacity: str, allocatable: str) -> None:
        async def agrees() -> bool:
            return await self.allocatable(resource) == (capacity, allocatable)

        await until_async(agrees, saying=f"{resource}: {capacity}/{allocatable}")

    async def start_pod(self, name: str, resource: str = TRAINING, cards: int = 1, *, bound: bool = False) -> None:
        """A pod that only this node can take; `bound` passes the scheduler over."""
        container = {"name": "main", "image": "any", "resources": {"limits": {resource: str(cards)}}}
        place: dict[str, Any] = (
            {"nodeName": self.node} if bound else {"nodeSelector": {"kubernetes.io/hostname": self.node}}
        )
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0, **place}

        async def accepted() -> bool:
            try:
                await self.client.create(PodStatus, {"metadata": {"name": name}, "spec": spec}, self.namespace)
            except Forbidden:
                return False  # The namespace has no service account yet.
            return True

        await until_async(accepted)

    async def pod(self, name: str) -> PodStatus:
        return await self.client.get(PodStatus, name, self.namespace)

    async def phase(self, name: str, phase: str) -> None:
        async def agrees() -> bool:
            return (await self.pod(name)).phase == phase

        await until_async(agrees, saying=f"{name} is {phase}")

    async def end_pod(self, name: str) -> None:
        await self.client.delete(PodStatus, name, self.namespace)

        async def gone() -> bool:
            try:
                await self.pod(name)
            except NotFound:
                return True
            return False

        await until_async(gone)

    async def users(self, index: int) -> list[str]:
        device = await self.client.get(GPUDevice, self.card(index))
        return [user.pod for user in device.status.used_by]

    async def used_by(self, index: int, pods: list[str]) -> None:
        async def agrees() -> bool:
            return await self.users(index) == pods

        await until_async(agrees, saying=f"card {index} is used by {pods}")

    async def annotate(self, index: int, annotations: dict[str, str]) -> None:
        body = {"metadata": {"annotations": {str(name): value for name, value in annotations.items()}}}
        await self.client.patch(GPUDevice, self.card(index), body)

    async def versions(self) -> dict[tuple[str, str], str]:
        """The resourceVersion of everything about this node that the fleet could write."""
        items: list[Object] = [
            await self.client.get(GPUNodeState, self.node),
            await self.client.get(NodeView, self.node),
        ]
        items.append(await self.client.get(NodeFeature, feature_name(self.node), NAMESPACE))
        items += [device for device in await self.client.list(GPUDevice) if device.spec.node_name == self.node]
        return {(type(item).__name__, item.name): item.metadata.resource_version for item in items}

    async def all_users(self) -> dict[str, str]:
        """The card of every pod that holds one."""
        devices = [device for device in await self.client.list(GPUDevice) if device.spec.node_name == self.node]
        return {user.pod: device.name for device in devices for user in device.status.used_by}

    async def health(self, index: int) -> Condition | None:
        device = await self.client.get(GPUDevice, self.card(index))
        return find(device.status.conditions, "Healthy")

    async def healthy(self, index: int, status: str, reason: str) -> None:
        async def agrees() -> bool:
            held = await self.health(index)
            return held is not None and (held.status, held.reason) == (status, reason)

        await until_async(agrees, saying=f"card {index} is Healthy={status} because of {reason}")
