"""The index gives the nodes that lack labels as they follow from the caches, at every moment."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gpu_control_plane.api.examples import node_state
from gpu_control_plane.api.gpunodestate import Driver, DriverSource, GPUNodeState
from gpu_control_plane.api.node import Node, NodeInfo, NodeStatus
from gpu_control_plane.api.nvidia.choices import Workload
from gpu_control_plane.api.nvidia.names import PCI_LABELS, TRUE, NodeLabel
from gpu_control_plane.kube import Key, Signal
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.kube.signal import Fired
from gpu_control_plane.operator.labelling.decide import DriverOwner, LabelPatch, LabelSpec, labelled_by_us
from gpu_control_plane.operator.labelling.label_index import LabelIndex
from gpu_control_plane.operator.labelling.metrics import LabellingMetrics
from unit.operator.labelling.builders import SPEC
from unit.operator.scripted_cache import ScriptedCache, running

CARD = {PCI_LABELS[0]: TRUE}


class FakePolicy:
    """What the active ClusterPolicy asks, as the test says."""

    def __init__(self) -> None:
        self.changed = Signal("policy")
        self.asked: LabelSpec | None = SPEC
        self.writes = True
        self.gone = False
        self.owners_asked: list[str] = []

    def ask(self, spec: LabelSpec | None, *, removed: bool = False) -> None:
        self.asked, self.gone = spec, removed
        self.changed.fire()

    def label_spec(self) -> LabelSpec | None:
        return self.asked

    def driver_owner(self, node: Node) -> DriverOwner | None:
        self.owners_asked.append(node.name)
        return DriverOwner("pool-a")

    def may_write(self) -> bool:
        return self.writes

    def removed(self) -> bool:
        return self.gone


class FakeDriverPods:
    """Nodes with driver pods, as the test says."""

    def __init__(self) -> None:
        self.changed = Signal("driver-pods")
        self.nodes: set[str] = set()

    def on(self, node: str) -> bool:
        return node in self.nodes


class IndexEnv:
    """An index on scripted caches, and what it was like each time that it fired its signal."""

    def __init__(self) -> None:
        self.nodes, self.states = ScriptedCache(Node), ScriptedCache(GPUNodeState)
        self.policy, self.driver_pods = FakePolicy(), FakeDriverPods()
        self.index = LabelIndex(self.nodes.cache, self.states.cache, self.policy, self.driver_pods)
        self.settled: list[bool] = []
        self.problem_changes = 0
        self._problems: dict[str, str] = {}
        self.index.changed.on_change(self._record)

    def _record(self, _old: Fired | None, _new: Fired | None) -> None:
        if self.index.host_problems == self._problems:
            self.settled.append(self.index.settled)
        else:
            self.problem_changes += 1
            self._problems = dict(self.index.host_problems)

    async def write(self, name: str) -> LabelPatch:
        """Write the labels of a node as the controller would."""
        node = self.nodes.cache.get(name)
        assert node is not None
        patch = self.index.patch_for(node)
        labels = {**node.metadata.labels, **patch.labels}
        await self.nodes.deliver(machine(name, {key: value for key, value in labels.items() if value is not None}))
        return patch


def machine(name: str, labels: dict[str, str] | None = None, runtime: str = "containerd://2.4.2") -> Node:
    return Node(
        metadata=ObjectMeta(name=name, labels=labels or {}),
        status=NodeStatus(node_info=NodeInfo(container_runtime_version=runtime)),
    )


def with_driver(name: str, version: str) -> GPUNodeState:
    state = node_state(name)
    driver = Driver(version=version, source=DriverSource.HOST)
    return msgspec.structs.replace(state, status=msgspec.structs.replace(state.status, driver=driver))


@pytest.fixture
async def env() -> AsyncIterator[IndexEnv]:
    made = IndexEnv()
    async with running(made.nodes, made.states):
        yield made


async def test_a_node_is_pending_until_it_has_its_labels(env: IndexEnv) -> None:
    await env.nodes.deliver(machine("bare"))
    assert env.index.settled
    await env.nodes.deliver(machine("a", CARD))
    await env.nodes.deliver(machine("b", CARD))
    assert env.index.pending == {"a", "b"}
    await env.write("a")
    await env.write("b")
    assert env.index.settled
    assert env.settled == [False, True]


async def test_a_node_that_is_deleted_is_not_pending(env: IndexEnv) -> None:
    await env.nodes.deliver(machine("a", CARD))
    await env.nodes.deliver(machine("a", CARD), deleted=True)
    assert env.settled == [False, True]


async def test_another_container_runtime_makes_a_node_pending(env: IndexEnv) -> None:
    await env.nodes.deliver(machine("a", CARD))
    await env.write("a")
    labels = env.nodes.cache.get("a")
    assert labels is not None
    await env.nodes.deliver(machine("a", labels.metadata.labels, runtime="cri-o://1.36.0"))
    assert env.index.pending == {"a"}


async def test_what_an_agent_reports_and_its_end_make_a_node_pending(env: IndexEnv) -> None:
    await env.nodes.deliver(machine("a", CARD))
    await env.write("a")
    await env.states.deliver(node_state("a"))
    assert env.index.pending == {"a"}
    assert "nvidia.com/gpu.deploy.driver" in (await env.write("a")).labels
    await env.states.deliver(node_state("a"), deleted=True)
    assert env.index.pending == {"a"}
    assert (await env.write("a")).labels.keys() == {
        "nvidia.com/gpu.deploy.device-plugin",
        "nvidia.com/gpu.deploy.operator-validator",
    }


async def test_a_driver_pod_on_a_node_is_seen_by_its_signal(env: IndexEnv) -> None:
    """What is loaded is then the pod's driver, and not the host's."""
    await env.nodes.deliver(machine("a", CARD))
    await env.states.deliver(with_driver("a", "580.1"))
    assert (await env.write("a")).labels["nvidia.com/gpu.deploy.driver"] == "pre-installed"
    labels = {"nvidia.com/gpu.deploy.driver": "true"}
    held = env.nodes.cache.get("a")
    assert held is not None
    await env.nodes.deliver(machine("a", {**held.metadata.labels, **labels}))
    assert env.index.pending == {"a"}
    env.driver_pods.nodes.add("a")
    env.driver_pods.changed.fire(Key("a"))
    assert env.index.settled


async def test_another_policy_concerns_all_nodes(env: IndexEnv) -> None:
    for name in ("a", "b"):
        await env.nodes.deliver(machine(name, CARD))
        await env.write(name)
    held = env.index.pending
    env.policy.ask(msgspec.structs.replace(SPEC, sandbox=True, default_workload=Workload.VM_VGPU))
    assert held is env.index.pending
    assert held == {"a", "b"}
    env.policy.ask(SPEC)
    assert not held
    assert env.settled == [False, True, False, True, False, True]


async def test_owners_are_computed_only_where_they_decide(env: IndexEnv) -> None:
    await env.nodes.deliver(machine("a", CARD))
    assert env.policy.owners_asked == []
    await env.nodes.deliver(machine("bare"))
    env.policy.ask(msgspec.structs.replace(SPEC, driver_crd=True))
    assert env.policy.owners_asked == ["a"]
    assert (await env.write("a")).labels["nvidia.com/gpu-operator.driver.owner"] == "pool-a"


async def test_without_a_policy_labels_are_removed_only_if_this_operator_wrote_them(env: IndexEnv) -> None:
    env.policy.ask(None)
    await env.nodes.deliver(machine("a", CARD | {"nvidia.com/gpu.present": TRUE, "nvidia.com/gpu.deploy.driver": TRUE}))
    env.policy.ask(None)
    assert (env.index.settled, any(map(labelled_by_us, env.nodes.cache))) == (True, False)
    env.policy.ask(SPEC)
    await env.write("a")
    assert (env.index.settled, any(map(labelled_by_us, env.nodes.cache))) == (True, True)
    env.policy.ask(None)
    assert env.index.settled
    env.policy.ask(None, removed=True)
    assert env.index.pending == {"a"}
    await env.write("a")
    assert (env.index.settled, any(map(labelled_by_us, env.nodes.cache))) == (True, False)
    held = env.nodes.cache.get("a")
    assert held is not None
    assert held.metadata.labels == CARD


async def test_problems_of_host_drivers_follow_driver_and_card(env: IndexEnv) -> None:
    await env.states.deliver(with_driver("a", "440.33"))
    assert env.index.host_problems == {}
    await env.nodes.deliver(machine("a", CARD))
    assert list(env.index.host_problems) == ["a"]
    await env.states.deliver(with_driver("a", "580.1"))
    assert env.index.host_problems == {}
    await env.states.deliver(with_driver("a", "418.1"))
    assert "418.1" in env.index.host_problems["a"]
    await env.nodes.deliver(machine("a", {**CARD, NodeLabel.OPERANDS: "false"}))
    assert env.index.host_problems == {}, "nothing of the stack goes there"
    await env.nodes.deliver(machine("a", CARD))
    assert list(env.index.host_problems) == ["a"]
    await env.nodes.deliver(machine("a"))
    assert env.index.host_problems == {}
    assert env.problem_changes == 6


async def test_the_metrics_are_those_of_the_index(env: IndexEnv) -> None:
    registry = CollectorRegistry()
    LabellingMetrics(registry, env.index, env.policy.may_write)
    await env.nodes.deliver(machine("a", CARD))
    await env.nodes.deliver(machine("b", CARD))
    await env.states.deliver(with_driver("b", "440.33"))
    assert registry.get_sample_value("gpu_operator_unlabelled_nodes") == 2
    assert registry.get_sample_value("gpu_operator_host_driver_problems") == 1


async def test_labels_are_not_counted_as_missing_while_nvidias_operator_is_active(env: IndexEnv) -> None:
    registry = CollectorRegistry()
    LabellingMetrics(registry, env.index, env.policy.may_write)
    await env.nodes.deliver(machine("a", CARD))
    env.policy.writes = False
    assert registry.get_sample_value("gpu_operator_unlabelled_nodes") == 0
    env.policy.writes = True
    assert registry.get_sample_value("gpu_operator_unlabelled_nodes") == 1
