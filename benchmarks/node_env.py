"""A real node with simulated cards and the agent as a process, for benchmarks: kubelet, containerd and API server run.

The agent is measured from outside: by its metrics, by /proc and by the kubelet's pod-resources API. The pools
controller does not run, so that the benchmark alone writes orders.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import msgspec

from benchmarks.clusters import API_SERVER, cluster_of
from benchmarks.processes import Process
from benchmarks.report import progress
from gpu_control_plane.agent.kubelet.podresources import PodResources
from gpu_control_plane.agent.simulated.machine import HARDWARE, card_uuid, new_machine, write_machine
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.allocation import Allocation, Mode
from gpu_control_plane.api.gpunodestate import Assignment, OfferedResource
from gpu_control_plane.api.identity import inventory_id
from gpu_control_plane.kube import Client
from gpu_control_plane.local import Cluster

CARDS = 8
RESOURCE = "gpu.deckhouse.io/bench"
_NODE = "node-a"
_POLL_SECONDS = 0.025
"""The kubelet answers 100 requests a second from all its clients together, the agent among them."""
_TIMEOUT_SECONDS = 60.0


class NotInTime(Exception):
    """Something did not happen while the benchmark waited."""


class NodeEnv:
    """The node, its orders and its agent."""

    def __init__(self, cluster: Cluster, client: Client) -> None:
        self.node = cluster.nodes[_NODE]
        self.log = self.node.logs / "agent.log"
        self._cluster = cluster
        self._client = client
        self._machine = new_machine("H200-141", CARDS)
        self._pod_resources = PodResources(f"unix://{self.node.pod_resources}", pause=_POLL_SECONDS)
        self._agent: Process | None = None
        self.uuids = [card_uuid(_NODE, address, 0) for address in self._machine.addresses]

    @property
    def agent(self) -> Process:
        assert self._agent is not None
        return self._agent

    async def start_agent(self) -> None:
        """Start it as the DaemonSet would, without waiting until it is ready."""
        folder = self._cluster.folder
        self._agent = await Process.start(
            self._cluster,
            "gpu_control_plane.agent",
            *("--node", _NODE, "--hardware", "simulated"),
            *("--kubelet-folder", str(self.node.device_plugins.parent), "--cdi-folder", str(self.node.cdi)),
            *("--device-folder", str(folder / "devices"), "--validations", str(folder / "validations")),
            log=self.log,
        )

    async def stop_agent(self) -> None:
        if self._agent is not None:
            await self._agent.stop()
            self._agent = None

    @asynccontextmanager
    async def controller(self) -> AsyncIterator[None]:
        """Every controller but pools, in a process of its own."""
        arguments = ("--without", "pools", "--identity", "bench", "--status-host", "127.0.0.1")
        log = self.node.logs / "controller.log"
        process = await Process.start(self._cluster, "gpu_control_plane.controller", *arguments, log=log)
        try:
            yield
        finally:
            await process.stop()

    async def install_cards(self) -> None:
        body = {"metadata": {"annotations": {HARDWARE: write_machine(self._machine)}}}
        await self._client.patch(NodeView, _NODE, body)

    async def cards_in_api(self) -> None:
        """Wait until every card has its GPUDevice, and the node its GPUNodeState."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            cards, states = await self._client.list(GPUDevice), await self._client.list(GPUNodeState)
            if states and sum(card.status.hardware is not None for card in cards) == CARDS:
                return
            _check(deadline, "the cards in the API")
            await asyncio.sleep(0.2)

    async def order(self, cards: Iterable[int]) -> None:
        """Order that these cards, by index, are offered whole, and no others."""
        assignments = [
            Assignment(
                inventory_id=inventory_id(_NODE, self._machine.addresses[index]),
                pool="bench",
                resources=(OfferedResource(name=RESOURCE, units=1),),
                allocation=Allocation(mode=Mode.EXCLUSIVE),
            )
            for index in cards
        ]
        body = {"spec": {"assignments": msgspec.to_builtins(assignments)}}
        await self._client.patch(GPUNodeState, _NODE, body)

    async def kubelet_offers(self, cards: Iterable[int]) -> None:
        """Wait until these cards, and no others, are allocatable at the kubelet."""
        wanted = {self.uuids[index] for index in cards}
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while (await self._pod_resources.allocatable()).get(RESOURCE, frozenset()) != wanted:
            _check(deadline, f"{len(wanted)} cards at the kubelet")


@asynccontextmanager
async def node_env() -> AsyncIterator[NodeEnv]:
    """A cluster of its own with one real node, its cards known to the cluster, the agent running, nothing ordered."""
    async with cluster_of(API_SERVER, nodes=(_NODE,)) as (cluster, client):
        env = NodeEnv(cluster, client)
        await env.install_cards()
        progress(f"a real node with {CARDS} simulated cards")
        async with env.controller():
            try:
                await env.start_agent()
                await env.cards_in_api()
                yield env
            finally:
                await env.stop_agent()


def _check(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise NotInTime(f"{what}: not within {_TIMEOUT_SECONDS:g} s; the logs of the agent and the kubelet say why")
