"""Nodes on a real API server get exactly their labels, each by one patch, and nothing is written without need."""

import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

import msgspec
import pytest

from fault_proxy import Fault, FaultProxy
from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.examples import manifest, node_state
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.choices import Workload
from gpu_control_plane.api.nvidia.names import AGENT, DEPLOY, PCI_LABELS, PRE_INSTALLED, TRUE, NodeLabel
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, FieldManager, Runtime, Signal
from gpu_control_plane.operator.labelling.controller import LabellingController
from gpu_control_plane.operator.labelling.decide import DriverOwner, LabelSpec
from integration.running import running
from unit.operator.labelling import builders
from waiting import until, until_async

P = {PCI_LABELS[0]: TRUE}
SPEC = msgspec.structs.replace(builders.SPEC, sandbox=True, mig_default="all-disabled")
CONTAINER = (
    *("driver", "gpu-feature-discovery", "container-toolkit", "device-plugin", "dcgm", "dcgm-exporter"),
    *("node-status-exporter", "operator-validator", "client"),
)
VM = ("sandbox-device-plugin", "sandbox-validator", "vfio-manager", "kata-manager", "cc-manager", "client")


class FakePolicy:
    """What the active ClusterPolicy asks, as the test says."""

    def __init__(self, spec: LabelSpec | None = SPEC) -> None:
        self.changed = Signal("policy")
        self.asked = spec
        self.writes = True
        self.gone = False

    def label_spec(self) -> LabelSpec | None:
        return self.asked

    def driver_owner(self, _node: Node) -> DriverOwner | None:
        return None

    def may_write(self) -> bool:
        return self.writes

    def removed(self) -> bool:
        return self.gone


class NoDriverPods:
    changed = Signal("driver-pods")

    def on(self, _node: str) -> bool:
        return False


class Fleet:
    """The nodes of one test. Their names are unlike any others', so that requests about them can be recognised."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.tag = secrets.token_hex(3)

    def name(self, short: str) -> str:
        return f"{self.tag}-{short}"

    async def add(self, short: str, labels: Mapping[str, str]) -> None:
        await self.client.create(Node, {"metadata": {"name": self.name(short), "labels": dict(labels)}})

    async def relabel(self, short: str, labels: Mapping[str, str | None]) -> None:
        await self.client.patch(Node, self.name(short), {"metadata": {"labels": dict(labels)}})

    async def report(self, short: str) -> None:
        """What an agent that serves a node with a driver of its host has said."""
        said = manifest(node_state(self.name(short), 1))
        await self.client.create(GPUNodeState, {"metadata": said["metadata"], "spec": said["spec"]})
        manager = FieldManager("test-agent")
        body = {"status": said["status"]}
        await self.client.apply(GPUNodeState, self.name(short), body, manager=manager, subresource="status")

    async def labels(self, short: str) -> dict[str, str]:
        """Labels of a node, those of discovery left out."""
        held = (await self.client.get(Node, self.name(short))).metadata.labels
        return {name: value for name, value in held.items() if name not in PCI_LABELS}

    async def clean(self) -> None:
        for node in await self.client.list(Node):
            if node.name.startswith(self.tag):
                await self.client.delete(Node, node.name)


@pytest.fixture
async def fleet(client: Client) -> AsyncIterator[Fleet]:
    await install(client)
    made = Fleet(client)
    yield made
    await made.clean()


@asynccontextmanager
async def labelling(proxy: FaultProxy, policy: FakePolicy) -> AsyncIterator[LabellingController]:
    runtime = Runtime("test-labelling", config=proxy.config, elect=False, status_port=None)
    made = LabellingController(runtime, policy, NoDriverPods())
    async with running(runtime) as task:
        caches = (runtime.cache(Node), runtime.cache(GPUNodeState))
        await until(lambda: all(cache.is_synced for cache in caches) or task.done())
        yield made


async def settled(made: LabellingController) -> None:
    await until(lambda: made.index.settled, saying="nodes have their labels")


async def served(fleet: Fleet, made: LabellingController) -> None:
    """Return when a node that came later has its labels: everything before it was looked at."""
    short = f"later-{secrets.token_hex(3)}"
    await fleet.add(short, P)
    await until_async(lambda: fleet.labels(short), saying="the later node has labels")
    await settled(made)


def patches(fleet: Fleet, proxy: FaultProxy) -> dict[str, int]:
    """How often something was written to each node of the test, those that came later left out."""
    counts: dict[str, int] = {}
    for request in proxy.writes:
        name = request.path.rpartition("/")[2]
        if name.startswith(fleet.tag) and "later" not in name:
            short = name.removeprefix(f"{fleet.tag}-")
            counts[short] = counts.get(short, 0) + 1
    return counts


def gpu(names: Iterable[str], **others: str) -> dict[str, str]:
    """Labels of a node with a card: what is deployed there, and where that is not simply `true`."""
    keys = dict.fromkeys(names, TRUE) | {name.replace("_", "-"): value for name, value in others.items()}
    deploy = {f"{DEPLOY}{name}": value for name, value in keys.items()}
    return {NodeLabel.PRESENT.value: TRUE, NodeLabel.RUNTIME.value: "containerd"} | deploy


OFF = {NodeLabel.OPERANDS.value: "false"}
VMS = {NodeLabel.WORKLOAD.value: "vm-passthrough"}
CAPABLE = {NodeLabel.MIG_CAPABLE.value: TRUE}
LAYOUT = {NodeLabel.MIG_CONFIG.value: "all-disabled"}
KINDS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "container": (P, gpu(CONTAINER)),
    "controller": ({PCI_LABELS[1]: TRUE}, gpu(CONTAINER)),
    "vms": (P | VMS, VMS | gpu(VM)),
    "mig": (P | CAPABLE, CAPABLE | LAYOUT | gpu(CONTAINER, mig_manager=TRUE)),
    "off": (P | OFF | {f"{DEPLOY}driver": TRUE}, OFF | gpu(())),
    "paused": (
        P | {f"{DEPLOY}driver": "paused-for-driver-upgrade"},
        gpu(CONTAINER, driver="paused-for-driver-upgrade"),
    ),
    "agent": (P, gpu(CONTAINER, driver=PRE_INSTALLED, device_plugin=AGENT, operator_validator=AGENT)),
    "lost": (
        {NodeLabel.PRESENT.value: TRUE, NodeLabel.RUNTIME.value: "crio", f"{DEPLOY}driver": TRUE},
        {NodeLabel.PRESENT.value: "false"},
    ),
    "cpu": ({"zone": "a"}, {"zone": "a"}),
    "right": (P | gpu(CONTAINER), gpu(CONTAINER)),
}
UNTOUCHED = {"cpu", "right"}


async def test_every_kind_of_node_gets_its_labels_by_one_patch_and_then_none(client: Client, fleet: Fleet) -> None:
    for short, (before, _) in KINDS.items():
        await fleet.add(short, before)
    await fleet.report("agent")
    async with FaultProxy.before(client.config) as proxy:
        async with labelling(proxy, FakePolicy()) as made:
            await settled(made)
            assert {short: await fleet.labels(short) for short in KINDS} == {
                short: after for short, (_, after) in KINDS.items()
            }
            assert patches(fleet, proxy) == dict.fromkeys(KINDS.keys() - UNTOUCHED, 1)
            for short in KINDS:
                heartbeat = {"status": {"nodeInfo": {"kernelVersion": f"6.8-{short}"}}}
                await client.patch(Node, fleet.name(short), heartbeat, subresource="status")
            await served(fleet, made)
        async with labelling(proxy, FakePolicy()) as made:
            await served(fleet, made)
        assert patches(fleet, proxy) == dict.fromkeys(KINDS.keys() - UNTOUCHED, 1)


async def test_labels_removed_by_hand_come_back_by_one_patch_each(client: Client, fleet: Fleet) -> None:
    names = [f"node-{number:02}" for number in range(20)]
    for short in names:
        await fleet.add(short, P)
    async with FaultProxy.before(client.config) as proxy, labelling(proxy, FakePolicy()) as made:
        await settled(made)
        for short in names:
            await fleet.relabel(short, dict.fromkeys(gpu(CONTAINER)))
        await served(fleet, made)
        assert [await fleet.labels(short) for short in names] == [gpu(CONTAINER)] * 20
        assert patches(fleet, proxy) == dict.fromkeys(names, 2)


async def test_a_node_that_loses_its_card_is_cleaned(client: Client, fleet: Fleet) -> None:
    await fleet.add("node", P | CAPABLE)
    async with FaultProxy.before(client.config) as proxy, labelling(proxy, FakePolicy()) as made:
        await settled(made)
        await fleet.relabel("node", {PCI_LABELS[0]: None})
        await served(fleet, made)
        assert await fleet.labels("node") == {NodeLabel.PRESENT.value: "false"} | CAPABLE | LAYOUT
        assert patches(fleet, proxy) == {"node": 2}


async def test_deploy_labels_follow_an_agent_that_comes_and_goes(client: Client, fleet: Fleet) -> None:
    await fleet.add("node", P)
    plugin = f"{DEPLOY}device-plugin"
    async with FaultProxy.before(client.config) as proxy, labelling(proxy, FakePolicy()) as made:
        await settled(made)
        await fleet.report("node")
        await until_async(lambda: _has(fleet, "node", plugin, AGENT))
        await client.delete(GPUNodeState, fleet.name("node"))
        await until_async(lambda: _has(fleet, "node", plugin, TRUE))
        # No report says that the host has no driver.
        assert await _has(fleet, "node", f"{DEPLOY}driver", PRE_INSTALLED)


async def test_another_policy_reaches_all_nodes(client: Client, fleet: Fleet) -> None:
    await fleet.add("node", P)
    policy = FakePolicy()
    async with FaultProxy.before(client.config) as proxy, labelling(proxy, policy) as made:
        await settled(made)
        policy.asked = msgspec.structs.replace(SPEC, default_workload=Workload.VM_PASSTHROUGH)
        policy.changed.fire()
        assert not made.index.settled
        await settled(made)
        assert await fleet.labels("node") == gpu(VM)
        assert patches(fleet, proxy) == {"node": 2}


async def test_a_conflict_is_retried_with_the_present_node(client: Client, fleet: Fleet) -> None:
    await fleet.add("node", P)
    async with FaultProxy.before(client.config) as proxy:
        path = Node.resource.path(None, fleet.name("node"))
        proxy.plant(Fault(when=lambda r: r.is_write and r.path == path, status=409, reason="Conflict", times=2))
        async with labelling(proxy, FakePolicy()) as made:
            await settled(made)
        assert await fleet.labels("node") == gpu(CONTAINER)


async def test_nothing_is_written_while_nvidias_operator_is_active(client: Client, fleet: Fleet) -> None:
    policy = FakePolicy()
    policy.writes = False
    await fleet.add("node", P)
    async with FaultProxy.before(client.config) as proxy, labelling(proxy, policy) as made:
        await fleet.add("second", P)
        await until(lambda: fleet.name("second") in made.index.pending)
        policy.changed.fire()
        await _reconciled(made, 2)
        assert proxy.writes == []
        policy.writes = True
        policy.changed.fire()
        await settled(made)
        assert patches(fleet, proxy) == {"node": 1, "second": 1}


async def test_without_a_policy_labels_are_removed_only_if_this_operator_wrote_them(
    client: Client, fleet: Fleet
) -> None:
    theirs = {NodeLabel.PRESENT.value: TRUE, f"{DEPLOY}driver": TRUE, NodeLabel.MIG_CONFIG.value: "all-1g.10gb"}
    await fleet.add("node", P | theirs)
    await fleet.add("new", P)
    policy = FakePolicy(None)
    async with FaultProxy.before(client.config) as proxy, labelling(proxy, policy) as made:
        policy.changed.fire()
        assert made.index.settled
        policy.asked = SPEC
        policy.changed.fire()
        await settled(made)
        before = patches(fleet, proxy)
        assert before == {"node": 1, "new": 1}
        policy.asked, policy.gone = None, True
        policy.changed.fire()
        await settled(made)
        assert await fleet.labels("node") == {NodeLabel.MIG_CONFIG.value: "all-1g.10gb"}
        assert await fleet.labels("new") == {}


async def _has(fleet: Fleet, short: str, name: str, value: str) -> bool:
    return (await fleet.labels(short)).get(name) == value


async def _reconciled(made: LabellingController, count: int) -> None:
    """Return when so many reconciles have ended."""
    done = made._runtime.metrics.reconciles.labels("labelling", "done")
    await until(lambda: done._value.get() >= count)
