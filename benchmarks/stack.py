"""The software stack on a fleet with pod life: a ClusterPolicy from nothing to quiet, against a bare client.

The bare client writes the very same objects and labels as fast as it can and waits for the same pods: what it takes
is what the cluster itself needs. KWOK plays kubelet; DaemonSet controller, scheduler and API server are real.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec
import structlog

from benchmarks.clusters import cluster_of, each
from benchmarks.processes import Process, running
from benchmarks.report import Measurement, at_least, at_most, progress
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import DEPLOY, NodeLabel
from gpu_control_plane.api.nvidia.status import State
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube import Client, Object, Resource, Runtime, Signal
from gpu_control_plane.local import Cluster, Component
from gpu_control_plane.local.components import SIMULATED_NODE_ANNOTATION, SIMULATED_NODE_VALUE
from gpu_control_plane.operator.labelling.controller import LabellingController
from gpu_control_plane.operator.labelling.decide import DriverOwner, LabelSpec, NodeInput, decide, label_spec_of
from gpu_control_plane.operator.node_facts import node_kind
from gpu_control_plane.operator.stack.live import CORE_KINDS
from gpu_control_plane.operator.stack.render import render_policy
from gpu_control_plane.operator.stack.render_input import Platform, RenderInput
from gpu_control_plane.operator.views import DaemonSet

NAMESPACE = "gpu-operands"

_OTHERS = ("inventory", "bootstrap", "pools")
_REPAIRED = 100
# The controllers of Kubernetes hold themselves back to 20 requests a second by default: that, and not the stack,
# would be measured.
_FAST = ("--kube-api-qps=500", "--kube-api-burst=1000")
# On a busy machine KWOK renews leases late, and does not restart the pods of a node that was NotReady meanwhile.
_PATIENT = ("--node-monitor-grace-period=10m",)
_NAME = "cluster-policy"
_EVERYWHERE = 6
"""DaemonSets of the stock policy that go to every node: those of MIG and MPS do not."""


class Namespace(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


async def measure(nodes: int, idle: float) -> list[Measurement]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    async with _cluster(nodes) as (_, client):
        raw_rate = await _raw_patches(client)
        labelled_rate = await _labelling_rate(client)
    async with _cluster(nodes) as (_, client):
        bare = await _bare(client)
    async with _cluster(nodes) as (cluster, client):
        arguments = [word for other in _OTHERS for word in ("--without", other)]
        arguments += ["--status-host", "127.0.0.1", "--operand-namespace", NAMESPACE]
        async with running(cluster, "gpu_control_plane.controller", *arguments) as process:
            return [
                at_least(
                    f"labelling {nodes:,} nodes against a bare client's patches",
                    labelled_rate / raw_rate,
                    "x",
                    0.7,
                    **{"raw per second": raw_rate, "labelled per second": labelled_rate},
                ),
                *await _from_nothing(client, process, nodes, bare),
                *await _quiet(client, process, idle),
            ]


async def _from_nothing(client: Client, process: Process, nodes: int, bare: float) -> list[Measurement]:
    progress(f"a ClusterPolicy comes to {nodes:,} nodes")
    before, start = await process.usage(), time.perf_counter()
    await client.create(StoredClusterPolicy, _policy())
    await _ready(client)
    seconds, used = time.perf_counter() - start, await process.usage()
    raw = {"seconds": seconds, "bare seconds": bare, "before": before, "after": used}
    requests = used.requests - before.requests
    return [
        at_most(
            f"{nodes:,} nodes from nothing to ready, against a bare client",
            seconds / bare,
            "x",
            1.2,
            **msgspec.to_builtins(raw),
        ),
        at_most("requests for it, a node", requests / nodes, "", 1.5, requests=requests),
        at_most(
            "CPU seconds for it, a thousand nodes", (used.cpu_seconds - before.cpu_seconds) / nodes * 1000, "s", 25
        ),
        at_most("memory at most", used.peak / 2**20, "MiB", 300),
    ]


async def _quiet(client: Client, process: Process, idle: float) -> list[Measurement]:
    progress(f"idle for {idle:g} s")
    before = await process.usage()
    await asyncio.sleep(idle)
    after = await process.usage()
    nodes = (await client.list(Node))[:_REPAIRED]
    progress(f"the labels of {len(nodes)} nodes are removed by hand")
    gone = {label: None for label in nodes[0].metadata.labels if label.startswith(DEPLOY)}
    gone[str(NodeLabel.PRESENT)] = None
    await _patch(client, [node.name for node in nodes], {"metadata": {"labels": gone}})
    start = time.perf_counter()
    while not all(map(_labelled, await client.list(Node))):
        await asyncio.sleep(0.2)
    seconds, repaired = time.perf_counter() - start, await process.usage()
    await _ready(client)
    return [
        at_most(f"writes in {idle:g} idle seconds", after.writes - before.writes, "", 0),
        at_most(
            "patches for each node whose labels were removed by hand",
            (repaired.writes - after.writes) / len(nodes),
            "",
            1.1,
            seconds=seconds,
        ),
    ]


@asynccontextmanager
async def _cluster(nodes: int) -> AsyncIterator[tuple[Cluster, Client]]:
    """Every component, with GPU nodes that have no labels yet."""
    flags = {Component.CONTROLLER_MANAGER: (*_FAST, *_PATIENT), Component.SCHEDULER: _FAST}
    async with cluster_of([*Component], flags) as (cluster, client):
        await client.create(Namespace, {"metadata": {"name": NAMESPACE}})
        progress(f"{nodes:,} nodes join")
        await each(range(nodes), lambda number: client.create(Node, _node(f"gpu-{number:04}")))
        await _all_ready(client, nodes)
        yield cluster, client


async def _raw_patches(client: Client) -> float:
    """Patches of Nodes a second that this server takes from a bare client."""
    names = [node.name for node in await client.list(Node)]
    labels = {f"bench.example/label-{number}": "true" for number in range(11)}
    start = time.perf_counter()
    await _patch(client, names, {"metadata": {"labels": labels}})
    return len(names) / (time.perf_counter() - start)


async def _labelling_rate(client: Client) -> float:
    """Nodes a second that labelling brings from nothing to right, the events of its patches coming back to it."""
    nodes = len(await client.list(Node))
    runtime = Runtime("bench", config=client.config, elect=False, status_port=None)
    labelling = LabellingController(runtime, _StockPolicy(), _NoDriverPods())
    task = asyncio.create_task(runtime.run())
    while not labelling.index.pending:
        await asyncio.sleep(0.01)
    start = time.perf_counter()
    while not labelling.index.settled:
        await asyncio.sleep(0.01)
    seconds = time.perf_counter() - start
    runtime.stop()
    await task
    return nodes / seconds


class _StockPolicy:
    """A stock policy that is active, for labelling alone."""

    def __init__(self) -> None:
        self.changed = Signal("policy")
        self._spec = label_spec_of(_spec())

    def label_spec(self) -> LabelSpec:
        return self._spec

    def driver_owner(self, _node: Node) -> DriverOwner | None:
        return None

    def may_write(self) -> bool:
        return True

    def removed(self) -> bool:
        return False


class _NoDriverPods:
    changed = Signal("driver-pods")

    def on(self, _node: str) -> bool:
        return False


async def _bare(client: Client) -> float:
    """Seconds that the cluster itself needs for the stack, once a bare client has written it."""
    progress("a bare client writes the same objects and labels")
    kinds = {kind.resource.kind: kind for kind in CORE_KINDS}
    start = time.perf_counter()
    nodes, spec = await client.list(Node), label_spec_of(_spec())
    changes = {node.name: msgspec.to_builtins(decide(NodeInput(node), spec).labels) for node in nodes}
    first = nodes[0]
    labels = {**first.metadata.labels, **changes[first.name]}
    labelled = msgspec.structs.replace(first, metadata=msgspec.structs.replace(first.metadata, labels=labels))
    render_input = RenderInput(
        policy=_spec(), platform=Platform(namespace=NAMESPACE), kinds={node_kind(labelled): len(nodes)}
    )  # fmt: skip
    manifests = [manifest for rendered in render_policy(render_input) for manifest in rendered.manifests]

    async def create(manifest: dict[str, Any]) -> None:
        kind = kinds[manifest["kind"]]
        await client.create(kind, manifest, manifest["metadata"].get("namespace"))

    await each(manifests, create)
    await each(changes, lambda name: client.patch(Node, name, {"metadata": {"labels": changes[name]}}))
    await _all_available(client, len(nodes))
    return time.perf_counter() - start


async def _patch(client: Client, names: Sequence[str], body: dict[str, object]) -> None:
    await each(names, lambda name: client.patch(Node, name, body))


async def _all_ready(client: Client, nodes: int) -> None:
    while sum(node.ready for node in await client.list(Node)) < nodes:
        await asyncio.sleep(0.5)


async def _all_available(client: Client, nodes: int) -> None:
    """Wait until every DaemonSet that goes to these nodes runs on all of them, with a sign of life now and then."""
    shown = 0.0
    while True:
        found = [item.status for item in await client.list(DaemonSet)]
        wanted = [status for status in found if status.desired_number_scheduled]
        available = sum(status.number_available for status in wanted)
        if len(wanted) == _EVERYWHERE and available == nodes * len(wanted):
            return
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            progress(f"{available:,} of {nodes * _EVERYWHERE:,} pods run")
        await asyncio.sleep(0.5)


async def _ready(client: Client) -> None:
    shown = 0.0
    while True:
        policy = await client.get(StoredClusterPolicy, _NAME)
        if policy.status.state is State.READY:
            return
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            progress(f"{sum(state.ready for state in policy.status.states):,} pods run")
        await asyncio.sleep(0.5)


def _labelled(node: Node) -> bool:
    return node.metadata.labels.get(NodeLabel.PRESENT) == "true"


def _policy() -> dict[str, Any]:
    """A policy with the operands that NVIDIA's chart deploys by default; of images only the names matter here."""
    image = {"repository": "example.com", "version": "v1"}
    operands = ("driver", "toolkit", "devicePlugin", "dcgmExporter", "gfd", "migManager", "validator")
    return {
        "metadata": {"name": _NAME},
        "spec": {
            "operator": {},
            "daemonsets": {},
            "dcgm": {"enabled": False},
            "nodeStatusExporter": {"enabled": False},
            **{name: {"image": name.lower(), **image} for name in operands},
            "driver": {"image": "driver", **image, "manager": {"image": "manager", **image}},
        },
    }


def _spec() -> ClusterPolicySpec:
    return msgspec.convert(_policy()["spec"], ClusterPolicySpec)


def _node(name: str) -> dict[str, Any]:
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    return {
        "metadata": {
            "name": name,
            "annotations": {SIMULATED_NODE_ANNOTATION: SIMULATED_NODE_VALUE},
            "labels": {
                "kubernetes.io/hostname": name,
                "feature.node.kubernetes.io/pci-10de.present": "true",
                str(NodeLabel.OS_ID): "ubuntu",
                str(NodeLabel.OS_VERSION): "24.04",
                str(NodeLabel.OS_MAJOR): "24",
                str(NodeLabel.KERNEL): "6.8.0-60-generic",
            },
        },
        "status": {"capacity": capacity, "allocatable": capacity},
    }
