"""Which nodes are woken when upgrade policies, or the nodes to which they apply, change."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import DEPLOY, NodeLabel
from gpu_control_plane.kube import ObjectMeta, Signal
from gpu_control_plane.operator.upgrade.groups import GroupIndex, UpgradeGroup, regrouped_nodes
from simulation.loop import SimulatedLoop
from unit.operator.scripted_cache import ScriptedCache, running
from unit.operator.upgrade.builders import POLICY

A = UpgradeGroup("a", POLICY, frozenset({"one", "two"}))
B = UpgradeGroup("b", POLICY, frozenset({"three"}))


def by_node(*groups: UpgradeGroup) -> dict[str, UpgradeGroup]:
    return {node: group for group in groups for node in group.nodes}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ((A, B), set()),
        ((replace(A, nodes=frozenset({"one", "two", "new"})), B), {"new"}),
        ((replace(A, nodes=frozenset({"one"})), B), {"two"}),
        ((replace(A, nodes=frozenset({"one"})), replace(B, nodes=frozenset({"two", "three"}))), {"two"}),
        ((replace(A, policy=replace(POLICY, paused=True)), B), {"one", "two"}),
        ((replace(A, policy=None), B), {"one", "two"}),
        ((replace(A, unreadable=True), B), {"one", "two"}),
        ((), {"one", "two", "three"}),
    ],
    ids=["the same", "a new node", "a node less", "another group", "paused", "off", "unreadable", "no group at all"],
)
def test_nodes_to_which_another_policy_applies_are_regrouped(
    after: tuple[UpgradeGroup, ...], expected: set[str]
) -> None:
    assert regrouped_nodes(by_node(A, B), by_node(*after)) == expected


class FakePolicies:
    """Upgrade groups as the test says."""

    def __init__(self) -> None:
        self.changed = Signal("policies")
        self.groups: tuple[UpgradeGroup, ...] | None = (A, B)
        self.writes = True
        self.reads = 0

    def upgrade_groups(self) -> tuple[UpgradeGroup, ...] | None:
        self.reads += 1
        return self.groups

    def may_write(self) -> bool:
        return self.writes


class IndexEnv:
    """An index on a scripted cache of nodes, and the keys that it has fired."""

    def __init__(self) -> None:
        self.nodes, self.policies = ScriptedCache(Node), FakePolicies()
        self.index = GroupIndex(self.policies, self.nodes.cache)
        self.regrouped: set[str] = set()
        self.index.regrouped.on_change(lambda _old, new: self.regrouped.add(new.key.name if new else ""))

    async def label(self, name: str, **labels: str) -> None:
        held = self.nodes.cache.get(name)
        before = held.metadata.labels if held is not None else {}
        await self.nodes.deliver(Node(metadata=ObjectMeta(name=name, labels={**before, **labels})))


def in_virtual_time(scenario: Callable[[IndexEnv], Awaitable[None]]) -> None:
    async def run() -> None:
        env = IndexEnv()
        async with running(env.nodes):
            await scenario(env)

    SimulatedLoop(0).run(run())


def test_groups_are_read_first_when_somebody_needs_them() -> None:
    """While caches fill, nodes would seem to be in no group."""

    async def scenario(env: IndexEnv) -> None:
        env.policies.changed.fire()
        assert env.policies.reads == 0
        assert env.index.group_of("one") == A
        env.policies.changed.fire()
        assert (env.policies.reads, env.regrouped) == (2, set())
        env.index.forget()
        env.policies.changed.fire()
        assert env.policies.reads == 2

    in_virtual_time(scenario)


def test_a_changed_policy_wakes_its_nodes_and_permission_to_write_wakes_all() -> None:
    async def scenario(env: IndexEnv) -> None:
        await env.label("one")
        await env.label("other")
        env.index.read()
        env.policies.groups = (replace(A, policy=None), B)
        env.policies.changed.fire()
        assert env.regrouped == {"one", "two"}
        env.regrouped.clear()
        env.policies.writes = False
        env.policies.changed.fire()
        assert (env.regrouped, env.index.may_write) == ({"one", "other"}, False)

    in_virtual_time(scenario)


def test_unknown_groups_are_not_the_same_as_none() -> None:
    async def scenario(env: IndexEnv) -> None:
        env.policies.groups = None
        assert (env.index.read(), env.index.known, env.index.may_write) == ((), False, False)
        env.policies.groups = ()
        env.policies.changed.fire()
        assert (env.index.read(), env.index.known, env.index.may_write) == ((), True, True)

    in_virtual_time(scenario)


@pytest.mark.parametrize(
    ("label", "value"),
    [
        (f"{DEPLOY}driver", "pre-installed"),
        (NodeLabel.OPERANDS.value, "false"),
        (NodeLabel.WORKLOAD.value, "vm-passthrough"),
        (NodeLabel.DRIVER_OWNER.value, "pool-a"),
        (NodeLabel.PRESENT.value, "false"),
    ],
)
def test_groups_are_read_anew_when_a_node_gets_its_driver_from_another_source(label: str, value: str) -> None:
    async def scenario(env: IndexEnv) -> None:
        await env.label("one")
        env.index.read()
        await asyncio.sleep(10)
        before = env.policies.reads
        await env.label("one", zone="a")
        assert env.policies.reads == before
        await env.label("one", **{label: value})
        assert env.policies.reads == before + 1

    in_virtual_time(scenario)


def test_many_nodes_that_change_at_once_are_read_once_more_at_the_end() -> None:
    async def scenario(env: IndexEnv) -> None:
        env.index.read()
        for number in range(100):
            await env.label(f"node-{number}")
        assert env.policies.reads == 2
        await asyncio.sleep(10)
        assert env.policies.reads == 3

    in_virtual_time(scenario)
