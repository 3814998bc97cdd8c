"""An agent that starts says nothing before it has looked: what its predecessor said stays as long as it is true."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from fault_proxy import FaultProxy
from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.agent.fleet.machines import node_manifest
from gpu_control_plane.agent.node import process
from gpu_control_plane.agent.node.options import Hardware, Options
from gpu_control_plane.agent.simulated.machine import new_machine
from gpu_control_plane.agent.simulated.models import pci_address
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api import GPUDevice, GPUNodeState, inventory_id
from gpu_control_plane.api.gpunodestate import AgentFunctions, Plugin, StepResult
from gpu_control_plane.api.names import DeviceCondition
from gpu_control_plane.api.nodefeature import NodeFeature, feature_name, read_facts
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, Runtime, load_config
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.objects import FieldManager
from gpu_control_plane.local import Cluster
from integration.agent.kubelet_and_books import KubeletAndBooks, kubelet_and_books
from integration.running import running
from unit.agent.step.builders import exclusive, time_sliced
from waiting import until, until_async, until_still

CARDS = 2
WHOLE, SHARED = "gpu.deckhouse.io/whole", "gpu.deckhouse.io/shared"
UNPOOLED = "nvidia.com/gpu"


class Place:
    """A node with cards, orders and a kubelet, for agents to come and go."""

    def __init__(self, client: Client, kubelet: KubeletAndBooks, folder: Path) -> None:
        self.client = client
        self.kubelet = kubelet
        self.name = f"node-{secrets.token_hex(3)}"
        self.folder = folder
        self.cards = [inventory_id(self.name, pci_address(index)) for index in range(CARDS)]

    async def furnish(self) -> None:
        """What inventory and pools make for a node: objects for it and its cards, and orders."""
        await self.client.create(NodeView, node_manifest(self.name, new_machine("H200-141", CARDS)))
        await self.client.create(GPUNodeState, {"metadata": {"name": self.name}})
        for index, card in enumerate(self.cards):
            spec = {"nodeName": self.name, "pciAddress": pci_address(index)}
            await self.client.create(GPUDevice, {"metadata": {"name": card}, "spec": spec})

    async def order(self) -> None:
        orders = (exclusive(self.cards[0], WHOLE), time_sliced(self.cards[1], 3, SHARED))
        body = {"spec": {"assignments": msgspec.to_builtins(orders)}}
        await self.client.apply(GPUNodeState, self.name, body, manager=FieldManager("pools"))

    def options(self, **others: object) -> Options:
        options = Options(
            node=self.name,
            hardware=Hardware.SIMULATED,
            labels=True,
            kubelet=self.kubelet.folder,
            cdi=self.folder / "cdi",
            validations=self.folder / "validations",
            simulated_devices=self.folder / "devices",
            runtime_state=self.folder / "runtimes",
        )
        return msgspec.structs.replace(options, **others)

    async def feature(self) -> NodeFeature | None:
        try:
            return await self.client.get(NodeFeature, feature_name(self.name), NAMESPACE)
        except NotFound:
            return None

    async def plugin(self) -> Plugin | None:
        return (await self.client.get(GPUNodeState, self.name)).status.plugin

    async def is_served(self) -> bool:
        """Whether an agent has said all there is to say."""
        feature, state = await self.feature(), await self.client.get(GPUNodeState, self.name)
        cards = [await self.client.get(GPUDevice, card) for card in self.cards]
        steps = state.status.validation.steps if state.status.validation else ()
        return (
            feature is not None
            and read_facts(feature).toolkit is not None
            and all(find(card.status.conditions, DeviceCondition.HEALTHY) for card in cards)
            and any(step.name == "plugin" and step.result is StepResult.PASSED for step in steps)
        )

    def checked_at(self) -> int:
        """When the last step of a check was passed, as its file says; 0 while it is being made."""
        try:
            return (self.folder / "validations/plugin-ready").stat().st_mtime_ns
        except FileNotFoundError:
            return 0


@pytest.fixture
async def place(api_server: Cluster, tmp_path: Path) -> AsyncIterator[Place]:
    async with Client(load_config(api_server.kubeconfig)) as client, kubelet_and_books() as kubelet:
        await install(client)
        place = Place(client, kubelet, tmp_path)
        await place.furnish()
        yield place


@asynccontextmanager
async def agent(place: Place, **options: object) -> AsyncIterator[FaultProxy]:
    """It runs inside; what it asks of the API server passes through the proxy."""
    async with FaultProxy.before(place.client.config) as proxy:
        runtime = Runtime("test-agent", config=proxy.config, elect=False, status_port=None)
        process.build(runtime, place.options(**options))
        async with running(runtime):
            yield proxy


async def serve(place: Place) -> None:
    """An agent comes, does all of its work, and goes."""
    await place.order()
    async with agent(place) as proxy:
        await until_async(place.is_served, saying="the agent serves the node")
        await until_still(lambda: len(proxy.writes))


async def test_an_agent_publishes_what_it_does_on_its_node(place: Place) -> None:
    """And its successor what that one does: nobody reads their command lines."""

    async def publishes(functions: AgentFunctions) -> bool:
        feature = await place.feature()
        return feature is not None and read_facts(feature).agent == functions

    usual = AgentFunctions(labels=True, checks=True, burn_in=False, exporter=True, runtime_configured=False)
    async with agent(place):
        await until_async(lambda: publishes(usual), saying=f"the agent publishes {usual}")
    other = AgentFunctions(labels=False, checks=False, burn_in=True, exporter=False, runtime_configured=False)
    async with agent(place, labels=False, validator=False, burn_in=True, exporter=False):
        await until_async(lambda: publishes(other), saying=f"the agent publishes {other}")


async def test_an_agent_that_finds_everything_said_writes_nothing(place: Place) -> None:
    await serve(place)
    before = place.checked_at()
    async with agent(place) as proxy:
        await until(lambda: place.checked_at() > before, saying="the new agent has made its checks")
        await until(lambda: len(place.kubelet.lists(SHARED)) == 3, saying="the kubelet has heard of the cards")
        await until_still(lambda: len(proxy.writes))
        assert [write for write in proxy.writes if place.name in write.path] == []


async def test_a_kubelet_that_is_away_when_the_agent_starts_takes_nothing_back(place: Place) -> None:
    await serve(place)
    said, before = await place.feature(), place.checked_at()
    place.kubelet.away = True
    async with agent(place) as proxy:
        await until(lambda: place.kubelet.refused >= 3, saying="the agent has asked again and again")
        place.kubelet.away = False
        await until(lambda: place.checked_at() > before, saying="the agent has made its checks")
        await until_still(lambda: len(proxy.writes))
        assert [write for write in proxy.writes if place.name in write.path] == []
    assert await place.feature() == said


async def test_what_the_last_agent_offered_is_no_rival_of_the_next(place: Place) -> None:
    """The kubelet shows a resource on the Node for a while after nobody serves it any more."""
    async with agent(place, unpooled=UNPOOLED):

        async def offered() -> bool:
            plugin = await place.plugin()
            return plugin is not None and [each.name for each in plugin.resources] == [UNPOOLED]

        await until_async(offered, saying="cards in no pool are offered")
    shown = {"status": {"allocatable": {UNPOOLED: str(CARDS)}, "capacity": {UNPOOLED: str(CARDS)}}}
    await place.client.patch(NodeView, place.name, shown, subresource="status")
    await place.order()
    async with agent(place):

        async def changed_over() -> bool:
            plugin = await place.plugin()
            names = [each.name for each in plugin.resources] if plugin else []
            return names == sorted((WHOLE, SHARED))

        await until_async(changed_over, saying="the orders are carried out")
        plugin = await place.plugin()
        assert plugin is not None
        assert (plugin.conflicts, [each.healthy for each in plugin.resources]) == ((), [3, 1])
