"""A real node with simulated cards and the agent as a process, for benchmarks: kubelet, containerd and API server run.

Everything here looks at the agent from outside: its metrics, the kernel's books about its process, the kubelet's books
about its devices. Pools do not run, so that a benchmark alone says what is ordered.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from benchmarks.report import progress
from gpu_control_plane.agent.kubelet.podresources import PodResources
from gpu_control_plane.agent.simulated.machine import HARDWARE, card_uuid, new_machine, write_machine
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.allocation import Allocation, Mode
from gpu_control_plane.api.gpunodestate import Assignment, OfferedResource
from gpu_control_plane.api.identity import inventory_id
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.local.ports import free_port
from gpu_control_plane.local.versions import NODE_PROGRAMS

CARDS = 8
RESOURCE = "gpu.deckhouse.io/bench"
_NODE = "node-a"
_CONTROL_PLANE = (Component.ETCD, Component.APISERVER)
_LOOK_EVERY = 0.025
"""Seconds; the kubelet answers 100 questions a second from everybody together, the agent's among them."""
_PATIENCE = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


class NotInTime(Exception):
    """Something did not happen while the benchmark waited."""


class NodeStage:
    """The node, its orders and its agent."""

    def __init__(self, cluster: Cluster, client: Client) -> None:
        self.node = cluster.nodes[_NODE]
        self.log = self.node.logs / "agent.log"
        self._cluster = cluster
        self._client = client
        self._machine = new_machine("H200-141", CARDS)
        self._books = PodResources(f"unix://{self.node.pod_resources}", pause=_LOOK_EVERY)
        self._port = free_port()
        self._agent: asyncio.subprocess.Process | None = None
        self._kubeconfig = cluster.folder / "kubeconfig.json"  # JSON: a pod needs no PyYAML, so neither must this agent
        self._kubeconfig.write_bytes(msgspec.json.encode(msgspec.yaml.decode(cluster.kubeconfig.read_bytes())))
        self.uuids = [card_uuid(_NODE, address, 0) for address in self._machine.addresses]

    @property
    def pid(self) -> int:
        assert self._agent is not None
        return self._agent.pid

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/metrics"

    async def start_agent(self) -> None:
        """Start it as the DaemonSet would, with what Python compiles kept, as it is in an image."""
        folder = self._cluster.folder
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        with self.log.open("ab") as log:
            self._agent = await self._python(
                log,
                environ,
                *("-m", "gpu_control_plane.agent", "--node", _NODE, "--hardware", "simulated"),
                *("--kubelet-folder", str(self.node.device_plugins.parent), "--cdi-folder", str(self.node.cdi)),
                *("--device-folder", str(folder / "devices"), "--validations", str(folder / "validations")),
                *("--status-port", str(self._port)),
            )

    async def stop_agent(self) -> None:
        if self._agent is not None:
            await _ended(self._agent)
            self._agent = None

    @asynccontextmanager
    async def controller(self) -> AsyncIterator[None]:
        """Every controller but pools, in a process of its own."""
        with (self.node.logs / "controller.log").open("ab") as log:
            process = await self._python(
                log,
                dict(os.environ),
                *("-m", "gpu_control_plane.controller", "--without", "pools"),
                *("--identity", "bench", "--status-host", "127.0.0.1", "--status-port", "0"),
            )
        try:
            yield
        finally:
            await _ended(process)

    async def _python(self, log: IO[bytes], environ: dict[str, str], *arguments: str) -> asyncio.subprocess.Process:
        environ |= {"KUBECONFIG": str(self._kubeconfig)}
        return await asyncio.create_subprocess_exec(sys.executable, *arguments, env=environ, stdout=log, stderr=log)

    # Orders, and how far the kubelet knows of them.

    async def install_cards(self) -> None:
        body = {"metadata": {"annotations": {HARDWARE: write_machine(self._machine)}}}
        await self._client.patch(NodeView, _NODE, body)

    async def known_to_the_cluster(self) -> None:
        """Wait until every card has its object, and the node a place for orders."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            cards, states = await self._client.list(GPUDevice), await self._client.list(GPUNodeState)
            if states and sum(card.status.hardware is not None for card in cards) == CARDS:
                return
            _check(deadline, "the cards in the API")
            await asyncio.sleep(0.2)

    async def order(self, cards: Iterable[int]) -> None:
        """Order these cards, by index, to be offered whole, and no others."""
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
        """Wait until the kubelet would hand out these cards and no others."""
        wanted = {self.uuids[index] for index in cards}
        deadline = time.monotonic() + _PATIENCE
        while (await self._books.allocatable()).get(RESOURCE, frozenset()) != wanted:
            _check(deadline, f"{len(wanted)} cards at the kubelet")

    # The process from outside.

    async def samples(self) -> list[Sample]:
        """Its metrics, as Prometheus would read them."""
        async with aiohttp.ClientSession() as session, session.get(self.metrics_url) as answer:
            families = text_string_to_metric_families(await answer.text())
        return [sample for family in families for sample in family.samples]

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory(self) -> dict[str, int]:
        return memory(self.pid)


def memory(pid: int) -> dict[str, int]:
    """What a process has in memory, in bytes, by the kernel's names: `Rss` is all, `Private_Dirty` its own alone."""
    lines = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return {fields[0].rstrip(":"): int(fields[1]) * 1024 for fields in lines}


@asynccontextmanager
async def node_stage() -> AsyncIterator[NodeStage]:
    """A cluster of its own with one real node, its cards known to the cluster, the agent running, nothing ordered."""
    with TemporaryDirectory(prefix="gpu-") as folder:  # short: the kubelet's sockets are in it
        binaries = ensure_binaries([*_CONTROL_PLANE, *NODE_PROGRAMS])
        cluster = Cluster(Path(folder), binaries, Settings(components=_CONTROL_PLANE, nodes=(_NODE,)))
        await asyncio.to_thread(cluster.start)
        try:
            async with Client(load_config(cluster.kubeconfig)) as client:
                await install(client)
                stage = NodeStage(cluster, client)
                await stage.install_cards()
                progress(f"a real node with {CARDS} simulated cards")
                async with stage.controller():
                    try:
                        await stage.start_agent()
                        await stage.known_to_the_cluster()
                        yield stage
                    finally:
                        await stage.stop_agent()
        finally:
            await asyncio.to_thread(cluster.stop)


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.wait()


def _check(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise NotInTime(f"{what}: not within {_PATIENCE:g} s; the logs of the agent and the kubelet say why")
