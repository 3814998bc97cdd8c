"""Each reason for which a card is in no pool, and each step of its way in and out."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.allocation import Mode, PoolAllocation, TimeSlice
from gpu_control_plane.api.deviceselector import DeviceCriteria, DeviceSelector
from gpu_control_plane.api.gpudevice import DeviceState, DeviceStatus
from gpu_control_plane.api.gpunodestate import NodeDevice, Plugin, Quiesced, StepResult, Validation, ValidationStep
from gpu_control_plane.api.gpupool import GPUPool, PoolAssignment, PoolResource, PoolSpec
from gpu_control_plane.api.names import Annotation, Label, NodeCondition
from gpu_control_plane.api.selectors import LabelSelector
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.pools.words import Waits
from unit.pools.model import NOW, World, holds


def pool(name: str = "a", age: int = 0, **spec: object) -> GPUPool:
    created = NOW - timedelta(seconds=age)
    return GPUPool(
        metadata=ObjectMeta(name=name, creation_timestamp=created),
        spec=PoolSpec(**spec),  # type: ignore[arg-type]
    )


def world(*pools: GPUPool, cards: int = 1, approved: str | None = None, made: World | None = None) -> World:
    made = made or World()
    made.pools = {each.name: each for each in pools}
    for index in range(cards):
        made.add_card(index)
    for name in made.devices:
        made.annotate(name, assignment=approved)
    return made


def only(made: World) -> str:
    (name,) = made.devices
    return name


def label(made: World, **labels: str) -> World:
    device = made.devices[only(made)]
    made.devices[device.name] = replace(device, metadata=replace(device.metadata, labels=labels))
    return made


def ignored() -> World:
    made = world(pool(), approved="a")
    device = made.devices[only(made)]
    made.devices[device.name] = replace(device, metadata=replace(device.metadata, labels={Label.IGNORE: "true"}))
    return made


def held() -> World:
    made = world(pool(assignment=PoolAssignment(require_annotation=False)))
    made.annotate(only(made), hold="waits for its twin")
    return made


def unprobed() -> World:
    """A card that was known before, and whose agent is new."""
    made = world(pool())
    made.settle()
    device = made.devices[only(made)]
    made.devices[device.name] = replace(device, status=replace(device.status, conditions=()))
    made.annotate(device.name, assignment="a")
    return made


def faulted() -> World:
    made = world(pool(), approved="a")
    made.set_healthy(only(made), healthy=False)
    return made


def not_ready() -> World:
    made = world(pool(), approved="a")
    made.set_ready(ready=False)
    return made


def node_gone() -> World:
    made = world(pool(), approved="a")
    made.labels = None
    return made


def deleted() -> World:
    made = world(pool(), approved="a")
    made.delete_pool("a")
    return made


H100 = DeviceSelector(include=DeviceCriteria(products=("*H100*",)))
SHARED = PoolResource(name="gpu.example.com/shared")


@pytest.mark.parametrize(
    ("make", "waits"),
    [
        (ignored, Waits.IGNORED),
        (held, Waits.HELD),
        (unprobed, Waits.PROBE),
        (faulted, Waits.HEALTH),
        (not_ready, Waits.NODE_NOT_READY),
        (deleted, Waits.POOL_DELETED),
        (world, Waits.NO_POOL),
        (lambda: world(pool()), Waits.APPROVAL),
        (lambda: world(pool(device_selector=H100)), Waits.NO_POOL),
        (lambda: world(pool(), approved="b"), Waits.POOL_NOT_FOUND),
        (lambda: world(pool(device_selector=H100), approved="a"), Waits.NOT_SELECTED),
        (
            lambda: world(
                pool(allocation=PoolAllocation(mode=Mode.TIME_SLICE, time_slice=TimeSlice(replicas=4))), approved="a"
            ),
            Waits.POOL_MISCONFIGURED,
        ),
        (
            lambda: world(pool("old", age=9, resource=SHARED), pool("young", resource=SHARED), approved="young"),
            Waits.POOL_MISCONFIGURED,
        ),
    ],
)
def test_a_card_in_no_pool_says_what_it_waits_for(make: Callable[[], World], waits: Waits) -> None:
    plan = make().plan()
    assert [card.reason for card in plan.pools.pending] == [waits]
    assert plan.assignments == ()
    assert waits.because


def test_a_new_card_is_left_alone_until_everything_about_it_is_known() -> None:
    made = world(pool(), approved="a")
    device = made.devices[only(made)]
    for unknown in (
        replace(device, status=replace(device.status, hardware=None)),
        replace(device, status=replace(device.status, conditions=())),
    ):
        made.devices[device.name] = unknown
        assert made.plan().cards == ()


def undescribed(*, ignored: bool = False, listed: bool = False, approved: str | None = None) -> World:
    """A node with a good card that is approved, and one of which only the bus says anything. `listed`: inventory has
    told of all its cards."""
    made = world(pool(), cards=2, approved="a")
    good, bad = sorted(made.devices)
    device = made.devices[bad]
    labels = {Label.IGNORE.value: "true"} if ignored else {}
    annotations = {Annotation.ASSIGNMENT.value: approved} if approved else {}
    meta = replace(device.metadata, labels=labels, annotations=annotations)
    made.devices[bad] = replace(device, metadata=meta, status=DeviceStatus())
    known = [(good, "NVIDIA H200"), (bad, None)]
    told = tuple(
        NodeDevice(inventory_id=name, pci_address=made.devices[name].spec.pci_address, product=product)
        for name, product in known
    )
    status = replace(made.state.status, device_count=2, devices=told if listed else ())
    made.state = replace(made.state, status=status)
    return made


def test_an_ignored_card_that_nobody_can_describe_holds_up_no_other() -> None:
    made = undescribed(ignored=True)
    plan = made.plan()
    assert plan.complete
    assert [order.inventory_id for order in plan.assignments] == [min(made.devices)]
    assert [card.reason for card in plan.pools.pending] == [Waits.IGNORED]


@pytest.mark.parametrize("approved", [None, "a"])
def test_a_card_that_only_the_bus_shows_is_named_and_never_pooled(approved: str | None) -> None:
    """Before inventory has told of it, its description may be on the way."""
    assert undescribed(approved=approved).plan().cards == ()
    made = undescribed(listed=True, approved=approved)
    plan = made.plan()
    assert plan.complete
    assert [(card.inventory_id, card.reason) for card in plan.pools.pending] == [(max(made.devices), Waits.PROBE)]


@pytest.mark.parametrize("card", [ignored, lambda: undescribed(ignored=True, approved="a")], ids=["known", "not shown"])
def test_an_ignored_card_does_not_keep_a_deleted_pool(card: Callable[[], World]) -> None:
    made = card()
    made.delete_pool("a")
    made.settle()
    assert not any(Annotation.ASSIGNMENT in device.metadata.annotations for device in made.devices.values())


def test_a_node_that_is_gone_gets_no_new_orders() -> None:
    assert node_gone().plan().assignments == ()


@pytest.mark.parametrize(
    "assignment",
    [
        PoolAssignment(require_annotation=False),
        PoolAssignment(auto_approve_selector=LabelSelector(match_labels={"trusted": "yes"})),
        PoolAssignment(auto_approve_selector=LabelSelector()),
    ],
)
def test_a_pool_that_approves_by_itself_writes_the_approval(assignment: PoolAssignment) -> None:
    made = label(world(pool(assignment=assignment)), trusted="yes")
    (card,) = made.plan().cards
    assert (card.approve, card.pool, card.ordered) == ("a", "a", True)
    made.settle()
    assert made.devices[only(made)].metadata.annotations[Annotation.ASSIGNMENT] == "a"


def test_a_selector_for_approval_leaves_other_cards_to_people() -> None:
    selector = LabelSelector(match_labels={"trusted": "yes"})
    made = label(world(pool(assignment=PoolAssignment(auto_approve_selector=selector))), trusted="no")
    assert [card.reason for card in made.plan().pools.pending] == [Waits.APPROVAL]


def test_of_several_pools_that_approve_by_themselves_the_oldest_gets_the_card() -> None:
    auto = PoolAssignment(require_annotation=False)
    made = world(pool("young", assignment=auto), pool("old", age=60, assignment=auto))
    assert [card.pool for card in made.plan().cards] == ["old"]


def test_no_more_cards_of_a_node_than_the_pool_allows_and_those_it_has_stay() -> None:
    made = world(pool(device_selector=DeviceSelector(max_devices_per_node=2)), cards=4)
    names = sorted(made.devices)
    made.annotate(names[3], assignment="a")
    made.settle()
    for name in names:
        made.annotate(name, assignment="a")
    made.settle()
    assert [name for name in names if made.claim(name)] == [names[0], names[3]]
    assert {card.reason for card in made.plan().pools.pending} == {Waits.NODE_LIMIT}


def test_a_fault_takes_the_state_but_not_the_pool() -> None:
    made = world(pool(), approved="a")
    made.settle()
    made.set_healthy(only(made), healthy=False)
    (card,) = made.plan().cards
    assert (card.state, card.pool, card.ordered) == (DeviceState.FAULTED, "a", True)


def test_a_node_that_is_no_longer_ready_keeps_what_it_has() -> None:
    made = world(pool(), approved="a")
    made.settle()
    made.set_ready(ready=False)
    assert [card.ordered for card in made.plan().cards] == [True]


def test_a_claim_comes_before_its_order() -> None:
    """A controller that dies after its first write must have written the claim, never the order."""
    made = world(pool(), approved="a")
    made.controller_acts(dies_after=1)
    assert made.claim(only(made)) == "a"
    assert made.state.spec.assignments == ()


def test_history_keeps_the_last_twenty_changes_newest_first() -> None:
    made = world(pool(), pool("b"), approved="a")
    for number in range(15):
        made.annotate(only(made), assignment="ab"[number % 2])
        made.settle()
    history = made.devices[only(made)].status.history
    assert len(history) == 20
    assert history[0].what == "Assigned to a"


INCOMPLETE = holds(NodeCondition.INVENTORY_COMPLETE, status=False)
READY = holds(NodeCondition.READY_FOR_POOLING, status=True)
FAILED = Validation(steps=(ValidationStep(name="cuda", result=StepResult.FAILED),))
OVERTAKEN = {
    "the report is not taken in": {},
    "a card is missing": {"conditions": (READY, INCOMPLETE)},
    "nothing is said of the cards": {"conditions": (READY,)},
    "the driver has gone": {"driver": None},
    "the toolkit has gone": {"toolkit": None},
    "a check failed": {"validation": FAILED},
    "the driver is let go of": {"quiesced": Quiesced(since=NOW, reason="upgrade")},
    "another device plugin": {"plugin": Plugin(observed_generation=1, conflicts=("nvidia.com/gpu",))},
}
"""What a node says that is called ready still, since bootstrap has not looked at it again."""


def overtaken(made: World, news: dict[str, object]) -> World:
    """The node with all its cards, after these news."""
    made.report_observed = bool(news)
    made.state = replace(made.state, status=replace(made.state.status, device_count=len(made.devices), **news))
    return made


def orders(made: World) -> list[str]:
    return [order.pool for order in made.state.spec.assignments]


@pytest.mark.parametrize("news", OVERTAKEN.values(), ids=OVERTAKEN)
def test_nothing_is_issued_nor_said_while_the_word_that_a_node_is_ready_is_overtaken(news: dict[str, object]) -> None:
    new = overtaken(world(pool(), approved="a"), news)
    assert new.controller_acts() == 0
    known = world(pool())
    known.settle()
    known.annotate(only(known), assignment="a")
    assert overtaken(known, news).controller_acts() == 0


@pytest.mark.parametrize("news", OVERTAKEN.values(), ids=OVERTAKEN)
def test_what_is_ordered_stays_ordered_while_the_word_is_overtaken(news: dict[str, object]) -> None:
    made = world(pool(), approved="a")
    made.settle()
    made.start_pod(only(made))
    assert overtaken(made, news).controller_acts() == 0
    assert orders(made) == ["a"]


def test_a_claim_is_not_ordered_while_the_word_that_its_node_is_ready_is_overtaken() -> None:
    """The controller died between the claim and the order."""
    made = world(pool(), approved="a")
    made.controller_acts(dies_after=1)
    assert made.claim(only(made)) == "a"
    made.report_observed = False
    made.settle()
    assert orders(made) == []
    made.report_observed = True
    made.settle()
    assert orders(made) == ["a"]


def test_a_card_leaves_its_pool_also_while_the_word_that_its_node_is_ready_is_overtaken() -> None:
    made = world(pool(), approved="a")
    made.settle()
    made.report_observed = False
    made.annotate(only(made), assignment=None)
    made.settle()
    assert made.claim(only(made)) is None
