"""Who asks the book whom a node belongs to gets the answer that the caches give, at every moment."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, StackReason
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.objects import Object, ObjectMeta
from gpu_control_plane.kube.watch import Batch
from gpu_control_plane.operator.drivers.ownership_index import OwnerBook
from gpu_control_plane.operator.labelling.decide import OwnerWish
from unit.api.nvidia.stock import stock_driver
from unit.operator.drivers.fleet import node


class Script[T: Object]:
    """A watch that says what the test wants it to say."""

    def __init__(self, kind: type[T]) -> None:
        self.cache: Cache[T] = Cache(kind, self)
        self._queue: asyncio.Queue[Batch[T]] = asyncio.Queue()
        self._version = 1
        self._queue.put_nowait(Batch([], "1", synced=True))

    async def changes(self, since: str | None) -> AsyncGenerator[Batch[T]]:
        while True:
            yield await self._queue.get()
            self._queue.task_done()

    async def say(self, changed: T, *, deleted: bool = False) -> None:
        self._version += 1
        meta = msgspec.structs.replace(changed.metadata, resource_version=str(self._version))
        self._queue.put_nowait(Batch([(msgspec.structs.replace(changed, metadata=meta), deleted)], str(self._version)))
        await self._queue.join()


class World:
    def __init__(self) -> None:
        self.drivers, self.nodes = Script(StoredNVIDIADriver), Script(Node)
        self.book = OwnerBook(self.drivers.cache, self.nodes.cache)
        self.told = 0
        self.book.on_change(self._tell)

    def _tell(self) -> None:
        self.told += 1

    def reason(self) -> StackReason | None:
        trouble = self.book.trouble
        return trouble.reason if trouble is not None else None

    def owner(self, name: str) -> OwnerWish | None:
        held = self.nodes.cache.get(name)
        assert held is not None
        return self.book.owner(held)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    made = World()
    tasks = [asyncio.create_task(script.cache.run()) for script in (made.drivers, made.nodes)]
    try:
        await asyncio.gather(made.drivers.cache.synced(), made.nodes.cache.synced())
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def stored(name: str, generation: int = 1, **spec: Any) -> StoredNVIDIADriver:
    held = {**stock_driver()["spec"], "default": False, **spec}
    return StoredNVIDIADriver(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", generation=generation),
        spec=msgspec.Raw(msgspec.json.encode(held)),
    )


async def test_owners_follow_nodes_and_drivers() -> None:
    async with world() as made:
        await made.nodes.say(node("n", labels={"pool": "a"}))
        assert made.owner("n") == OwnerWish(None)
        await made.drivers.say(stored("x", default=True))
        assert made.owner("n") == OwnerWish("x", upgrades=True)
        await made.drivers.say(stored("a", nodeSelector={"pool": "a"}, upgradePolicy={"autoUpgrade": False}))
        assert made.owner("n") == OwnerWish("a", upgrades=False)
        await made.nodes.say(node("n"))
        assert made.owner("n") == OwnerWish("x", upgrades=True)


async def test_a_conflict_is_told_when_it_comes_and_when_it_goes() -> None:
    async with world() as made:
        await made.drivers.say(stored("a", nodeSelector={"pool": "a"}))
        await made.drivers.say(stored("b", nodeSelector={"zone": "z"}))
        await made.nodes.say(node("quiet", labels={"pool": "a"}))
        before = made.told
        await made.nodes.say(node("n", labels={"pool": "a", "zone": "z"}))
        assert made.told == before + 1
        assert made.reason() is StackReason.CONFLICTING_NODE_SELECTOR
        assert made.owner("quiet") is None
        assert made.book.unlabelled("a") == []
        await made.nodes.say(node("other"))
        assert made.told == before + 1
        await made.nodes.say(node("n", labels={"pool": "a", "zone": "z"}), deleted=True)
        assert made.told == before + 2
        assert made.reason() is None
        assert made.owner("quiet") == OwnerWish("a", upgrades=True)


async def test_a_status_that_moves_is_no_news() -> None:
    async with world() as made:
        await made.drivers.say(stored("a"))
        before = made.told
        await made.drivers.say(stored("a"))
        assert made.told == before
        await made.drivers.say(stored("a", 2, nodeSelector={"pool": "a"}))
        assert made.told == before + 1


async def test_a_driver_that_cannot_be_read_stops_all_changes() -> None:
    async with world() as made:
        await made.nodes.say(node("n"))
        await made.drivers.say(stored("x", default=True))
        await made.drivers.say(stored("torn", rdma="yes"))
        assert made.owner("n") is None
        assert made.book.trouble is not None
        assert "torn: spec.rdma" in made.book.trouble.message


async def test_campaigns_go_by_the_labels_that_nodes_carry() -> None:
    async with world() as made:
        await made.drivers.say(stored("a", nodeSelector={"pool": "a"}, upgradePolicy=None))
        await made.drivers.say(stored("host", nodeSelector={"pool": "h"}, driverType="vgpu-host-manager"))
        await made.nodes.say(node("mine", owner="a", labels={"pool": "a"}))
        await made.nodes.say(node("soon", labels={"pool": "a"}))
        first, second = made.book.campaigns()
        assert (first.name, first.nodes) == ("a", frozenset({"mine"}))
        policy = first.active_policy
        assert policy is not None
        assert policy.pod_deletion is not None
        assert policy.drain is not None
        assert policy.wait_for_completion is not None
        assert (second.name, second.active_policy) == ("host", None)
        assert made.book.unlabelled("a") == ["soon"]
        assert [held.name for held in made.book.carrying("a")] == ["mine"]


async def test_a_campaign_whose_policy_nobody_can_read_is_not_taken_for_one_that_is_off() -> None:
    async with world() as made:
        await made.drivers.say(stored("torn", rdma="yes"))
        await made.drivers.say(stored("off", upgradePolicy={"autoUpgrade": False}))
        assert [(held.name, held.unreadable) for held in made.book.campaigns()] == [("off", False), ("torn", True)]


async def test_a_driver_that_selects_other_nodes_changes_the_owner_of_those_nodes_alone() -> None:
    async with world() as made:
        await made.drivers.say(stored("a", nodeSelector={"pool": "a"}))
        await made.drivers.say(stored("x", default=True))
        await made.nodes.say(node("one", labels={"pool": "a"}))
        await made.nodes.say(node("two", labels={"pool": "b"}))
        await made.nodes.say(node("bare", labels={"pool": "b", NodeLabel.PRESENT: "false"}))
        assert (made.book.unlabelled("a"), made.book.unlabelled("x")) == (["one"], ["two"])
        await made.drivers.say(stored("a", 2, nodeSelector={"pool": "b"}))
        assert (made.book.unlabelled("a"), made.book.unlabelled("x")) == (["two"], ["one"])
        await made.drivers.say(stored("b", nodeSelector={"pool": "b"}))
        assert made.reason() is StackReason.CONFLICTING_NODE_SELECTOR
        await made.drivers.say(stored("b", nodeSelector={"pool": "b"}), deleted=True)
        await made.drivers.say(stored("x", 2, default=True), deleted=True)
        assert (made.reason(), made.book.unlabelled("a"), made.book.unlabelled("x")) == (None, ["two"], [])


@pytest.mark.parametrize("label", [NodeLabel.PRESENT, NodeLabel.OS_ID])
async def test_a_node_without_a_card_belongs_to_nobody(label: NodeLabel) -> None:
    async with world() as made:
        await made.drivers.say(stored("x", default=True))
        await made.nodes.say(node("n", labels={label: "false"}))
        owner = made.owner("n")
        assert owner is not None
        assert owner.name == (None if label is NodeLabel.PRESENT else "x")
