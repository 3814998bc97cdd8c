"""Who asks the book which nodes lack labels gets the answer that the caches give, at every moment."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gpu_control_plane.api.examples import node_state
from gpu_control_plane.api.gpunodestate import Driver, DriverSource, GPUNodeState
from gpu_control_plane.api.node import Node, NodeInfo, NodeStatus
from gpu_control_plane.api.nvidia.choices import Workload
from gpu_control_plane.api.nvidia.names import PCI_LABELS, TRUE, NodeLabel
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.objects import Object, ObjectMeta
from gpu_control_plane.kube.watch import Batch
from gpu_control_plane.operator.labelling.decide import Change, OwnerWish, Wish, managed
from gpu_control_plane.operator.labelling.label_index import LabelBook
from gpu_control_plane.operator.labelling.metrics import LabellingMetrics
from unit.operator.labelling.scene import WISH

CARD = {PCI_LABELS[0]: TRUE}


class Script[T: Object]:
    """A watch that says what the test wants it to say."""

    def __init__(self, kind: type[T]) -> None:
        self.queue: asyncio.Queue[Batch[T]] = asyncio.Queue()
        self.cache: Cache[T] = Cache(kind, self)
        self._version = 0
        self.queue.put_nowait(Batch([], "1", synced=True))

    async def changes(self, since: str | None) -> AsyncGenerator[Batch[T]]:
        while True:
            yield await self.queue.get()
            self.queue.task_done()

    async def say(self, changed: T, *, deleted: bool = False) -> None:
        self._version += 1
        meta = msgspec.structs.replace(changed.metadata, resource_version=str(self._version))
        changed = msgspec.structs.replace(changed, metadata=meta)
        self.queue.put_nowait(Batch([(changed, deleted)], str(self._version)))
        await self.queue.join()


class Given:
    """What is in force, as the test says."""

    def __init__(self) -> None:
        self.wished: Wish | None = WISH
        self.writes = True
        self.gone = False
        self.asked: list[str] = []

    def wish(self) -> Wish | None:
        return self.wished

    def owner(self, node: Node) -> OwnerWish | None:
        self.asked.append(node.name)
        return OwnerWish("pool-a")

    def may_write(self) -> bool:
        return self.writes

    def retired(self) -> bool:
        return self.gone


class World:
    def __init__(self) -> None:
        self.nodes, self.states = Script(Node), Script(GPUNodeState)
        self.policies = Given()
        self.book = LabelBook(self.nodes.cache, self.states.cache, self.policies, lambda _node: False)
        self.told: list[bool] = []
        self.problems_told = 0
        self.book.on_settled(self.told.append)
        self.book.on_problems(self._problems)

    def _problems(self) -> None:
        self.problems_told += 1

    async def write(self, name: str) -> Change:
        """Do what the book says of a node, as the controller would."""
        node = self.nodes.cache.get(name)
        assert node is not None
        change = self.book.change(node)
        labels = {**node.metadata.labels, **change.labels}
        await self.nodes.say(machine(name, {key: value for key, value in labels.items() if value is not None}))
        return change


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
async def world() -> AsyncGenerator[World]:
    made = World()
    tasks = [asyncio.create_task(script.cache.run()) for script in (made.nodes, made.states)]
    await asyncio.gather(made.nodes.cache.synced(), made.states.cache.synced())
    yield made
    for task in tasks:
        task.cancel()


async def test_a_node_is_outstanding_until_its_labels_are_there(world: World) -> None:
    await world.nodes.say(machine("bare"))
    assert world.book.settled
    await world.nodes.say(machine("a", CARD))
    await world.nodes.say(machine("b", CARD))
    assert world.book.outstanding == {"a", "b"}
    await world.write("a")
    await world.write("b")
    assert world.book.settled
    assert world.told == [False, True]


async def test_a_node_that_goes_is_waited_for_no_longer(world: World) -> None:
    await world.nodes.say(machine("a", CARD))
    await world.nodes.say(machine("a", CARD), deleted=True)
    assert world.told == [False, True]


async def test_another_runtime_is_noticed(world: World) -> None:
    await world.nodes.say(machine("a", CARD))
    await world.write("a")
    labels = world.nodes.cache.get("a")
    assert labels is not None
    await world.nodes.say(machine("a", labels.metadata.labels, runtime="cri-o://1.36.0"))
    assert world.book.outstanding == {"a"}


async def test_what_an_agent_says_and_its_end_are_noticed(world: World) -> None:
    await world.nodes.say(machine("a", CARD))
    await world.write("a")
    await world.states.say(node_state("a"))
    assert world.book.outstanding == {"a"}
    assert "nvidia.com/gpu.deploy.driver" in (await world.write("a")).labels
    await world.states.say(node_state("a"), deleted=True)
    assert world.book.outstanding == {"a"}
    assert (await world.write("a")).labels.keys() == {
        "nvidia.com/gpu.deploy.device-plugin",
        "nvidia.com/gpu.deploy.operator-validator",
    }


async def test_another_policy_concerns_all_nodes(world: World) -> None:
    for name in ("a", "b"):
        await world.nodes.say(machine(name, CARD))
        await world.write(name)
    held = world.book.outstanding
    world.policies.wished = msgspec.structs.replace(WISH, sandbox=True, default_workload=Workload.VM_VGPU)
    world.book.recount()
    assert held is world.book.outstanding
    assert held == {"a", "b"}
    world.policies.wished = WISH
    world.book.recount()
    assert not held
    assert world.told == [False, True, False, True, False, True]


async def test_owners_are_asked_for_only_where_they_decide(world: World) -> None:
    await world.nodes.say(machine("a", CARD))
    assert world.policies.asked == []
    world.policies.wished = msgspec.structs.replace(WISH, driver_crd=True)
    await world.nodes.say(machine("bare"))
    world.book.look_at("a")
    assert world.policies.asked == ["a"]
    assert (await world.write("a")).labels["nvidia.com/gpu-operator.driver.owner"] == "pool-a"


async def test_without_a_policy_nothing_is_touched_unless_it_was_ours(world: World) -> None:
    world.policies.wished = None
    await world.nodes.say(machine("a", CARD | {"nvidia.com/gpu.present": TRUE, "nvidia.com/gpu.deploy.driver": TRUE}))
    world.book.recount()
    assert (world.book.settled, any(map(managed, world.nodes.cache))) == (True, False)
    world.policies.wished = WISH
    await world.write("a")
    assert (world.book.settled, any(map(managed, world.nodes.cache))) == (True, True)
    world.policies.wished = None
    world.book.recount()
    assert world.book.settled
    world.policies.gone = True
    world.book.recount()
    assert world.book.outstanding == {"a"}
    await world.write("a")
    assert (world.book.settled, any(map(managed, world.nodes.cache))) == (True, False)
    held = world.nodes.cache.get("a")
    assert held is not None
    assert held.metadata.labels == CARD


async def test_problems_of_host_drivers_come_and_go_with_driver_and_card(world: World) -> None:
    await world.states.say(with_driver("a", "440.33"))
    assert world.book.problems == {}
    await world.nodes.say(machine("a", CARD))
    assert list(world.book.problems) == ["a"]
    await world.states.say(with_driver("a", "580.1"))
    assert world.book.problems == {}
    await world.states.say(with_driver("a", "418.1"))
    assert "418.1" in world.book.problems["a"]
    await world.nodes.say(machine("a", {**CARD, NodeLabel.OPERANDS: "false"}))
    assert world.book.problems == {}, "nothing of the stack goes there"
    await world.nodes.say(machine("a", CARD))
    assert list(world.book.problems) == ["a"]
    await world.nodes.say(machine("a"))
    assert world.book.problems == {}
    assert world.problems_told == 6


async def test_the_numbers_are_those_of_the_book(world: World) -> None:
    registry = CollectorRegistry()
    LabellingMetrics(registry, world.book, world.policies.may_write)
    await world.nodes.say(machine("a", CARD))
    await world.nodes.say(machine("b", CARD))
    await world.states.say(with_driver("b", "440.33"))
    assert registry.get_sample_value("gpu_operator_unlabelled_nodes") == 2
    assert registry.get_sample_value("gpu_operator_host_driver_problems") == 1


async def test_labels_that_another_operator_would_have_to_write_are_missed_by_nobody(world: World) -> None:
    registry = CollectorRegistry()
    LabellingMetrics(registry, world.book, world.policies.may_write)
    await world.nodes.say(machine("a", CARD))
    world.policies.writes = False
    assert registry.get_sample_value("gpu_operator_unlabelled_nodes") == 0
    world.policies.writes = True
    assert registry.get_sample_value("gpu_operator_unlabelled_nodes") == 1
