"""The index gives the owner that follows from the caches, at every moment."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, StackReason
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.kube.signal import Fired
from gpu_control_plane.operator.drivers.ownership_index import OwnershipIndex
from gpu_control_plane.operator.labelling.decide import DriverOwner
from unit.api.nvidia.stock import stock_driver
from unit.operator.drivers.builders import node
from unit.operator.scripted_cache import ScriptedCache, running


class IndexEnv:
    """An index on scripted caches, and how often it has fired its signal."""

    def __init__(self) -> None:
        self.drivers, self.nodes = ScriptedCache(StoredNVIDIADriver), ScriptedCache(Node)
        self.index = OwnershipIndex(self.drivers.cache, self.nodes.cache)
        self.fired = 0
        self.index.changed.on_change(self._count)

    def _count(self, _old: Fired | None, _new: Fired | None) -> None:
        self.fired += 1

    def reason(self) -> StackReason | None:
        problem = self.index.problem
        return problem.reason if problem is not None else None

    def owner(self, name: str) -> DriverOwner | None:
        held = self.nodes.cache.get(name)
        assert held is not None
        return self.index.owner(held)


@pytest.fixture
async def env() -> AsyncIterator[IndexEnv]:
    made = IndexEnv()
    async with running(made.drivers, made.nodes):
        yield made


def stored(name: str, generation: int = 1, **spec: Any) -> StoredNVIDIADriver:
    held = {**stock_driver()["spec"], "default": False, **spec}
    return StoredNVIDIADriver(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", generation=generation),
        spec=msgspec.Raw(msgspec.json.encode(held)),
    )


async def test_owners_follow_nodes_and_drivers(env: IndexEnv) -> None:
    await env.nodes.deliver(node("n", labels={"pool": "a"}))
    assert env.owner("n") == DriverOwner(None)
    await env.drivers.deliver(stored("x", default=True))
    assert env.owner("n") == DriverOwner("x", upgrades=True)
    await env.drivers.deliver(stored("a", nodeSelector={"pool": "a"}, upgradePolicy={"autoUpgrade": False}))
    assert env.owner("n") == DriverOwner("a", upgrades=False)
    await env.nodes.deliver(node("n"))
    assert env.owner("n") == DriverOwner("x", upgrades=True)


async def test_a_conflict_is_signalled_when_it_appears_and_when_it_is_solved(env: IndexEnv) -> None:
    await env.drivers.deliver(stored("a", nodeSelector={"pool": "a"}))
    await env.drivers.deliver(stored("b", nodeSelector={"zone": "z"}))
    await env.nodes.deliver(node("quiet", labels={"pool": "a"}))
    before = env.fired
    await env.nodes.deliver(node("n", labels={"pool": "a", "zone": "z"}))
    assert env.fired == before + 1
    assert env.reason() is StackReason.CONFLICTING_NODE_SELECTOR
    assert env.owner("quiet") is None
    assert env.index.unlabelled_nodes("a") == []
    await env.nodes.deliver(node("other"))
    assert env.fired == before + 1
    await env.nodes.deliver(node("n", labels={"pool": "a", "zone": "z"}), deleted=True)
    assert env.fired == before + 2
    assert env.reason() is None
    assert env.owner("quiet") == DriverOwner("a", upgrades=True)


async def test_a_change_of_a_status_is_not_signalled(env: IndexEnv) -> None:
    await env.drivers.deliver(stored("a"))
    before = env.fired
    await env.drivers.deliver(stored("a"))
    assert env.fired == before
    await env.drivers.deliver(stored("a", 2, nodeSelector={"pool": "a"}))
    assert env.fired == before + 1


async def test_a_driver_that_cannot_be_read_stops_all_changes(env: IndexEnv) -> None:
    await env.nodes.deliver(node("n"))
    await env.drivers.deliver(stored("x", default=True))
    await env.drivers.deliver(stored("torn", rdma="yes"))
    assert env.owner("n") is None
    assert env.index.problem is not None
    assert "torn: spec.rdma" in env.index.problem.message


async def test_upgrade_groups_follow_the_owner_labels_of_nodes(env: IndexEnv) -> None:
    await env.drivers.deliver(stored("a", nodeSelector={"pool": "a"}, upgradePolicy=None))
    await env.drivers.deliver(stored("host", nodeSelector={"pool": "h"}, driverType="vgpu-host-manager"))
    await env.nodes.deliver(node("mine", owner="a", labels={"pool": "a"}))
    await env.nodes.deliver(node("soon", labels={"pool": "a"}))
    first, second = env.index.upgrade_groups()
    assert (first.name, first.nodes) == ("a", frozenset({"mine"}))
    policy = first.active_policy
    assert policy is not None
    assert policy.pod_deletion is not None
    assert policy.drain is not None
    assert policy.wait_for_completion is not None
    assert (second.name, second.active_policy) == ("host", None)
    assert env.index.unlabelled_nodes("a") == ["soon"]
    assert [held.name for held in env.index.labelled_nodes("a")] == ["mine"]


async def test_a_group_whose_policy_cannot_be_read_is_not_off(env: IndexEnv) -> None:
    await env.drivers.deliver(stored("torn", rdma="yes"))
    await env.drivers.deliver(stored("off", upgradePolicy={"autoUpgrade": False}))
    assert [(held.name, held.unreadable) for held in env.index.upgrade_groups()] == [("off", False), ("torn", True)]


async def test_a_driver_that_selects_other_nodes_changes_the_owner_of_those_nodes_alone(env: IndexEnv) -> None:
    await env.drivers.deliver(stored("a", nodeSelector={"pool": "a"}))
    await env.drivers.deliver(stored("x", default=True))
    await env.nodes.deliver(node("one", labels={"pool": "a"}))
    await env.nodes.deliver(node("two", labels={"pool": "b"}))
    await env.nodes.deliver(node("bare", labels={"pool": "b", NodeLabel.PRESENT: "false"}))
    assert (env.index.unlabelled_nodes("a"), env.index.unlabelled_nodes("x")) == (["one"], ["two"])
    await env.drivers.deliver(stored("a", 2, nodeSelector={"pool": "b"}))
    assert (env.index.unlabelled_nodes("a"), env.index.unlabelled_nodes("x")) == (["two"], ["one"])
    await env.drivers.deliver(stored("b", nodeSelector={"pool": "b"}))
    assert env.reason() is StackReason.CONFLICTING_NODE_SELECTOR
    await env.drivers.deliver(stored("b", nodeSelector={"pool": "b"}), deleted=True)
    await env.drivers.deliver(stored("x", 2, default=True), deleted=True)
    assert (env.reason(), env.index.unlabelled_nodes("a"), env.index.unlabelled_nodes("x")) == (None, ["two"], [])


@pytest.mark.parametrize("label", [NodeLabel.PRESENT, NodeLabel.OS_ID])
async def test_a_node_without_a_card_has_no_owner(env: IndexEnv, label: NodeLabel) -> None:
    await env.drivers.deliver(stored("x", default=True))
    await env.nodes.deliver(node("n", labels={label: "false"}))
    owner = env.owner("n")
    assert owner is not None
    assert owner.name == (None if label is NodeLabel.PRESENT else "x")
