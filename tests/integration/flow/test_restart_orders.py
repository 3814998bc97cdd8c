"""A controller process that starts in a settled cluster writes nothing, in whatever order and however slowly its caches
fill.

All controllers run in it, with pools, NVIDIADrivers and upgrades. Before it starts, everything else that writes is
stopped: what is written afterwards, Events included, it has written.
"""

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fault_proxy import Fault, FaultProxy, Request
from gpu_control_plane.agent.fleet.machines import node_manifest
from gpu_control_plane.agent.simulated.machine import new_machine
from gpu_control_plane.api.admissionpolicy import ValidatingAdmissionPolicyBinding
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.status import State
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.bootstrap import controller as bootstrap
from gpu_control_plane.bootstrap.snapshot import Settings as BootstrapSettings
from gpu_control_plane.installation.crds import install
from gpu_control_plane.inventory import controller as inventory
from gpu_control_plane.inventory.snapshot import Settings as InventorySettings
from gpu_control_plane.kube import Client, Runtime, Timing, load_config
from gpu_control_plane.kube.config import Config
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.local import Cluster, Component
from gpu_control_plane.operator import controller as operator
from gpu_control_plane.operator.stack.live import LiveServiceMonitor
from gpu_control_plane.pools import controller as pools
from gpu_control_plane.pools.snapshot import Settings as PoolSettings
from gpu_control_plane.rules.bypass_policy import bypass_policies
from integration.flow.env import FlowEnv, pool_of
from integration.operator.test_openshift import definition
from integration.stack.operator_env import IMAGES, NAMESPACE, Namespace, OperatorEnv, gpu_node
from unit.api.nvidia.stock import stock_driver, stock_policy
from waiting import until, until_async, until_still

SEEDS = range(4)
SLOWEST = 1.5
AT_ONCE = timedelta(0)
WRITERS = (Component.KWOK, Component.SCHEDULER, Component.CONTROLLER_MANAGER)
OWN_DRIVER, THE_REST = "own", "the-rest"
POLICY = "cluster-policy"
QUICK = Timing(duration=3.0, deadline=2.0, renewal=0.5, retry=0.2)
CARD = "agent-a-0000-18-00-0"


class ControllerProcess:
    """Every controller of the product, without waiting times: what could be written later is written at once."""

    def __init__(self, config: Config, identity: str = "one", timing: Timing | None = None) -> None:
        """With a `timing` it has to win the lease first."""
        self.runtime = Runtime(
            "gpu-control-plane", config=config, namespace="default", identity=identity, status_port=None,
            elect=timing is not None, timing=timing,
        )  # fmt: skip
        inventory.build(self.runtime, InventorySettings(first_report_timeout=AT_ONCE, bus_disagreement_timeout=AT_ONCE))
        bootstrap.build(self.runtime, BootstrapSettings(loss_after=AT_ONCE, return_after=AT_ONCE))
        pools.build(self.runtime, PoolSettings(selection_interval=AT_ONCE))
        operator.build(self.runtime, operator.OperatorSettings(namespace=NAMESPACE, images=IMAGES))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.runtime.run())
        try:
            yield
        finally:
            self.runtime.stop()
            await task

    def reconciles(self) -> int:
        """How often anything was reconciled, with whatever result."""
        samples = (sample for metric in self.runtime.metrics.reconciles.collect() for sample in metric.samples)
        return sum(int(sample.value) for sample in samples if sample.name.endswith("_total"))

    def idle(self) -> bool:
        metrics = self.runtime.metrics
        gauges = (metrics.queue_depth, metrics.workers_busy)
        busy = (sample.value for gauge in gauges for metric in gauge.collect() for sample in metric.samples)
        return self.reconciles() > 0 and not any(busy)

    async def settled(self, moves: Callable[[], int] = lambda: 0, under_way: Callable[[], int] = lambda: 0) -> None:
        """Wait until nothing is left to do: nothing is `under_way`, and for a while nothing `moves` either."""
        await until(lambda: self.idle() and not under_way(), within=180, saying="the process settles")
        await until_still(lambda: self.reconciles() + moves() + under_way(), within=180)


class Slowness:
    """Holds requests and pieces of answers back, each for a while of its own."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.held = 0

    async def hold(self, _request: Request) -> None:
        self.held += 1
        try:
            # A third of them is not held at all, so that some overtake all the others.
            await asyncio.sleep(max(self._rng.uniform(-SLOWEST / 2, SLOWEST), 0.0))
        finally:
            self.held -= 1


@pytest.mark.timeout(600)
async def test_a_restart_writes_nothing_in_whatever_order_caches_fill(whole_cluster: Cluster, tmp_path: Path) -> None:
    config = load_config(whole_cluster.kubeconfig)
    async with Client(config) as client, FaultProxy.before(config) as proxy:
        env = FlowEnv(whole_cluster, client, proxy, tmp_path / "flow_env")
        await _create_objects(env)
        process = ControllerProcess(config)
        async with process.running():
            await _until_complete(env)
            await process.settled()
    found = await asyncio.gather(*(_restart(config, seed) for seed in SEEDS))
    assert found == [[] for _ in SEEDS]


@pytest.mark.timeout(600)
async def test_a_replica_that_leads_again_writes_nothing_after_another_has_settled_everything(
    own_api_server: Callable[[], Cluster],
) -> None:
    config = load_config((await asyncio.to_thread(own_api_server)).kubeconfig)
    async with Client(config) as client, FaultProxy.before(config) as proxy:
        await install(client)
        await client.create(Namespace, {"metadata": {"name": NAMESPACE}})
        await client.create(Node, gpu_node("plain-a"))
        await client.create(StoredNVIDIADriver, _driver(OWN_DRIVER, {"kubernetes.io/hostname": "plain-a"}))
        await client.create(StoredClusterPolicy, {"metadata": {"name": POLICY}, "spec": _policy()})
        first, second = ControllerProcess(proxy.config, "first", QUICK), ControllerProcess(config, "second", QUICK)
        async with first.running():
            await first.settled()
            away = proxy.plant(Fault(when=_about_leases, times=math.inf, status=503))
            await until(lambda: not first.runtime.leading, saying="the lease is not lost")
            await client.create(Node, gpu_node("plain-b", system=("rhel", "9.4"), runtime="cri-o://1.36.0"))
            async with second.running():
                await until_async(
                    lambda: _labelled(client, "plain-b"), within=120, saying="the other one does not lead"
                )
                await second.settled()
            before = len(proxy.requests)
            away.times = 0
            await until(lambda: first.runtime.leading, within=120, saying="the lease is not won again")
            await first.settled()
        written = [request for request in proxy.requests[before:] if request.is_write and not _about_leases(request)]
        assert written == []


def _about_leases(request: Request) -> bool:
    return "/leases" in request.path and "nvidia" not in request.query.get("fieldSelector", "")


async def _labelled(client: Client, node: str) -> bool:
    return NodeLabel.PRESENT in (await client.get(Node, node)).metadata.labels


async def _restart(config: Config, seed: int) -> list[str]:
    """What a new process writes until it has settled."""
    async with FaultProxy.before(config) as proxy:
        slowness = Slowness(seed)
        proxy.on_request = proxy.on_chunk = slowness.hold
        process = ControllerProcess(proxy.config)
        async with process.running():
            await process.settled(lambda: len(proxy.requests), lambda: slowness.held)
        return [f"seed {seed}: {request.method} {request.path}" for request in proxy.writes]


async def _until_complete(env: FlowEnv) -> None:
    """Wait until every object is there and settled, and stop all other writers then."""
    operator_env = OperatorEnv(env.client, env.cluster)
    await env.start_fleet()
    try:
        await env.devices_known(4)
        await env.approve(CARD, "training")
        await env.start_pod("worker", "training")
        await env.pod_is("worker", "Running")
        await env.device_is(CARD, lambda device: pool_of(device) == "training")
        await operator_env.state("ready")
        await until_async(lambda: _drivers_settled(operator_env), within=120, saying="drivers do not become ready")
        await until_async(lambda: operator_env.held(LiveServiceMonitor), within=60, saying="there is no ServiceMonitor")
        for component in WRITERS:
            await asyncio.to_thread(env.cluster.stop_component, component)
    finally:
        await env.stop_fleet()


async def _create_objects(env: FlowEnv) -> None:
    """Nodes with and without an agent, two NVIDIADrivers, two pools, of which one waits for cards to be approved."""
    client, operator_env = env.client, OperatorEnv(env.client, env.cluster)
    await until_async(env.takes_pods)
    await client.create(CustomResourceDefinition, definition(LiveServiceMonitor.resource))
    await client.create(Namespace, {"metadata": {"name": NAMESPACE}})
    # The chart exempts the namespace of the operands, which are given cards in ways of their own.
    for manifest in bypass_policies():
        if manifest["kind"] == ValidatingAdmissionPolicyBinding.resource.kind:
            await client.delete(ValidatingAdmissionPolicyBinding, manifest["metadata"]["name"])
    for name in ("agent-a", "agent-b"):
        await client.create(Node, _with_agent(name))
    await operator_env.nodes(gpu_node("plain-a"), gpu_node("plain-b", system=("rhel", "9.4"), runtime="cri-o://1.36.0"))
    await client.create(StoredNVIDIADriver, _driver(OWN_DRIVER, {"kubernetes.io/hostname": "plain-a"}))
    await client.create(StoredNVIDIADriver, _driver(THE_REST, None))
    await operator_env.policy(_policy())
    await env.add_pool("training")
    await env.add_pool("research")


def _with_agent(name: str) -> dict[str, Any]:
    """A node whose simulated agent reports two cards and a driver of the host."""
    body: dict[str, Any] = node_manifest(name, new_machine("H200-141", 2))
    body["metadata"]["labels"] |= gpu_node(name)["metadata"]["labels"]
    return body


def _driver(name: str, nodes: dict[str, str] | None) -> dict[str, Any]:
    manifest = stock_driver()
    selector = {"nodeSelector": nodes} if nodes else {}
    return {**manifest, "metadata": {"name": name}, "spec": {**manifest["spec"], "default": not nodes, **selector}}


def _policy() -> dict[str, Any]:
    spec: dict[str, Any] = stock_policy()["spec"]
    spec["driver"] |= {"useNvidiaDriverCRD": True, "upgradePolicy": {"autoUpgrade": True}}
    spec["dcgmExporter"] |= {"serviceMonitor": {"enabled": True}}
    return spec


async def _drivers_settled(env: OperatorEnv) -> bool:
    drivers = [await env.client.get(StoredNVIDIADriver, name) for name in (OWN_DRIVER, THE_REST)]
    nodes = [await env.node(name) for name in ("plain-a", "plain-b")]
    return all(driver.status.state is State.READY and driver.status.upgrade for driver in drivers) and all(
        node.metadata.labels.get(NodeLabel.UPGRADE_STATE) == UpgradeState.DONE for node in nodes
    )
