"""Each reason why a card is in no pool, and each step of its way in and out."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.allocation import MIG, Mode, PoolAllocation
from gpu_control_plane.api.deviceselector import DeviceCriteria, DeviceSelector
from gpu_control_plane.api.gpudevice import DeviceState, DeviceStatus
from gpu_control_plane.api.gpunodestate import NodeDevice, Plugin, Quiesced, StepResult, Validation, ValidationStep
from gpu_control_plane.api.gpupool import GPUPool, PoolAssignment, PoolResource, PoolSpec, PoolStatus
from gpu_control_plane.api.names import Annotation, Label, NodeCondition
from gpu_control_plane.api.scheduling import NUMA, Scheduling
from gpu_control_plane.api.selectors import LabelSelector
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.pools.pending_reasons import PendingReason
from unit.pools.model import NOW, NodeModel, holds


def pool(name: str = "a", age: int = 0, **spec: object) -> GPUPool:
    created = NOW - timedelta(seconds=age)
    made = PoolSpec(**spec)  # type: ignore[arg-type]
    return GPUPool(
        metadata=ObjectMeta(name=name, creation_timestamp=created),
        spec=made,
        status=PoolStatus(allocation=made.allocation.canonical),
    )


def node_with(*pools: GPUPool, cards: int = 1, approved: str | None = None, made: NodeModel | None = None) -> NodeModel:
    made = made or NodeModel()
    made.pools = {each.name: each for each in pools}
    for index in range(cards):
        made.add_card(index)
    for name in made.devices:
        made.annotate(name, assignment=approved)
    return made


def only(made: NodeModel) -> str:
    (name,) = made.devices
    return name


def label(made: NodeModel, **labels: str) -> NodeModel:
    device = made.devices[only(made)]
    made.devices[device.name] = replace(device, metadata=replace(device.metadata, labels=labels))
    return made


def ignored() -> NodeModel:
    made = node_with(pool(), approved="a")
    device = made.devices[only(made)]
    made.devices[device.name] = replace(device, metadata=replace(device.metadata, labels={Label.IGNORE: "true"}))
    return made


def held() -> NodeModel:
    made = node_with(pool(assignment=PoolAssignment(require_annotation=False)))
    made.annotate(only(made), hold="waits for its replacement")
    return made


def unprobed() -> NodeModel:
    """A card that was known before, and whose agent is new."""
    made = node_with(pool())
    made.settle()
    device = made.devices[only(made)]
    made.devices[device.name] = replace(device, status=replace(device.status, conditions=()))
    made.annotate(device.name, assignment="a")
    return made


def faulted() -> NodeModel:
    made = node_with(pool(), approved="a")
    made.set_healthy(only(made), healthy=False)
    return made


def not_ready() -> NodeModel:
    made = node_with(pool(), approved="a")
    made.set_ready(ready=False)
    return made


def node_gone() -> NodeModel:
    made = node_with(pool(), approved="a")
    made.labels = None
    return made


def deleted() -> NodeModel:
    made = node_with(pool(), approved="a")
    made.delete_pool("a")
    return made


H100 = DeviceSelector(include=DeviceCriteria(products=("*H100*",)))
A100_SLICES = PoolAllocation(mode=Mode.MIG, mig=MIG(profile="1g.10gb"))
SHARED = PoolResource(name="gpu.example.com/shared")


@pytest.mark.parametrize(
    ("make", "pending"),
    [
        (ignored, PendingReason.IGNORED),
        (held, PendingReason.HELD),
        (unprobed, PendingReason.PROBE),
        (faulted, PendingReason.HEALTH),
        (not_ready, PendingReason.NODE_NOT_READY),
        (deleted, PendingReason.POOL_DELETED),
        (node_with, PendingReason.NO_POOL),
        (lambda: node_with(pool()), PendingReason.APPROVAL),
        (lambda: node_with(pool(device_selector=H100)), PendingReason.NO_POOL),
        (lambda: node_with(pool(), approved="b"), PendingReason.POOL_NOT_FOUND),
        (lambda: node_with(pool(device_selector=H100), approved="a"), PendingReason.NOT_SELECTED),
        (lambda: node_with(pool(allocation=A100_SLICES), approved="a"), PendingReason.MODE_UNSUPPORTED),
        (lambda: node_with(pool(allocation=A100_SLICES)), PendingReason.MODE_UNSUPPORTED),
        (
            lambda: node_with(pool("old", age=9, resource=SHARED), pool("young", resource=SHARED), approved="young"),
            PendingReason.POOL_MISCONFIGURED,
        ),
    ],
)
def test_a_card_in_no_pool_has_its_reason(make: Callable[[], NodeModel], pending: PendingReason) -> None:
    plan = make().plan()
    assert [card.reason for card in plan.pools.pending] == [pending]
    assert plan.assignments == ()
    assert pending.because


def test_a_new_card_is_left_alone_until_everything_about_it_is_known() -> None:
    made = node_with(pool(), approved="a")
    device = made.devices[only(made)]
    for unknown in (
        replace(device, status=replace(device.status, hardware=None)),
        replace(device, status=replace(device.status, conditions=())),
    ):
        made.devices[device.name] = unknown
        assert made.plan().cards == ()


def undescribed(*, ignored: bool = False, listed: bool = False, approved: str | None = None) -> NodeModel:
    """A node with a good card that is approved, and one that only the bus shows. `listed`: inventory has written the
    list of its cards."""
    made = node_with(pool(), cards=2, approved="a")
    good, bad = sorted(made.devices)
    device = made.devices[bad]
    labels = {Label.IGNORE.value: "true"} if ignored else {}
    annotations = {Annotation.ASSIGNMENT.value: approved} if approved else {}
    meta = replace(device.metadata, labels=labels, annotations=annotations)
    made.devices[bad] = replace(device, metadata=meta, status=DeviceStatus())
    known = [(good, "NVIDIA H200"), (bad, None)]
    devices = tuple(
        NodeDevice(inventory_id=name, pci_address=made.devices[name].spec.pci_address, product=product)
        for name, product in known
    )
    status = replace(made.state.status, device_count=2, devices=devices if listed else ())
    made.state = replace(made.state, status=status)
    return made


def test_an_ignored_card_without_hardware_holds_up_no_other() -> None:
    made = undescribed(ignored=True)
    plan = made.plan()
    assert plan.complete
    assert [order.inventory_id for order in plan.assignments] == [min(made.devices)]
    assert [card.reason for card in plan.pools.pending] == [PendingReason.IGNORED]


@pytest.mark.parametrize("approved", [None, "a"])
def test_a_card_that_only_the_bus_shows_is_listed_and_never_pooled(approved: str | None) -> None:
    """Before inventory has listed it, its hardware may be on the way."""
    assert undescribed(approved=approved).plan().cards == ()
    made = undescribed(listed=True, approved=approved)
    plan = made.plan()
    assert plan.complete
    assert [(card.inventory_id, card.reason) for card in plan.pools.pending] == [
        (max(made.devices), PendingReason.PROBE)
    ]


@pytest.mark.parametrize("card", [ignored, lambda: undescribed(ignored=True, approved="a")], ids=["known", "not shown"])
def test_an_ignored_card_does_not_keep_a_deleted_pool(card: Callable[[], NodeModel]) -> None:
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
    made = label(node_with(pool(assignment=assignment)), trusted="yes")
    (card,) = made.plan().cards
    assert (card.approve, card.pool, card.ordered) == ("a", "a", True)
    made.settle()
    assert made.devices[only(made)].metadata.annotations[Annotation.ASSIGNMENT] == "a"


def test_a_selector_for_approval_leaves_other_cards_to_people() -> None:
    selector = LabelSelector(match_labels={"trusted": "yes"})
    made = label(node_with(pool(assignment=PoolAssignment(auto_approve_selector=selector))), trusted="no")
    assert [card.reason for card in made.plan().pools.pending] == [PendingReason.APPROVAL]


def test_of_several_pools_that_approve_by_themselves_the_oldest_gets_the_card() -> None:
    auto = PoolAssignment(require_annotation=False)
    made = node_with(pool("young", assignment=auto), pool("old", age=60, assignment=auto))
    assert [card.pool for card in made.plan().cards] == ["old"]


def test_a_younger_pool_gets_what_the_older_one_has_no_room_for() -> None:
    """Three cards, an older pool that takes two of a node, and a younger one without a limit."""
    auto = PoolAssignment(require_annotation=False)
    older = pool("old", age=60, assignment=auto, device_selector=DeviceSelector(max_devices_per_node=2))
    made = node_with(older, pool("young", assignment=auto), cards=3)
    made.settle()
    assert [made.claim(name) for name in sorted(made.devices)] == ["old", "old", "young"]


def test_a_card_that_a_full_pool_selects_alone_waits_for_room() -> None:
    auto = PoolAssignment(require_annotation=False)
    made = node_with(pool(assignment=auto, device_selector=DeviceSelector(max_devices_per_node=1)), cards=2)
    made.settle()
    assert [card.reason for card in made.plan().pools.pending] == [PendingReason.NODE_LIMIT]


@pytest.mark.parametrize("approved", [None, "a"])
def test_a_faulted_card_outside_the_pool_takes_no_room_in_it(approved: str | None) -> None:
    selector = DeviceSelector(max_devices_per_node=1)
    made = node_with(
        pool(device_selector=selector, assignment=PoolAssignment(require_annotation=approved is not None)),
        cards=2,
        approved=approved,
    )
    broken, good = sorted(made.devices)
    made.set_healthy(broken, healthy=False)
    made.settle()
    assert (made.claim(broken), made.claim(good)) == (None, "a")
    assert [card.reason for card in made.plan().pools.pending] == [PendingReason.HEALTH]


def test_a_faulted_card_does_not_wait_for_an_approval() -> None:
    made = node_with(pool())
    made.set_healthy(only(made), healthy=False)
    assert [card.reason for card in made.plan().pools.pending] == [PendingReason.HEALTH]


def test_a_pool_counts_the_cards_that_it_selects_by_why_they_are_not_in_it() -> None:
    auto = PoolAssignment(require_annotation=False)
    full = DeviceSelector(max_devices_per_node=1)
    made = node_with(
        pool("full", age=60, assignment=auto, device_selector=full),
        pool("slices", age=30, assignment=auto, allocation=A100_SLICES),
        pool("manual"),
        cards=3,
    )
    made.settle()
    selected = made.plan().selected
    assert selected["full"] == {None: 1, PendingReason.APPROVAL: 2}
    assert selected["slices"] == {PendingReason.MODE_UNSUPPORTED: 3}
    assert selected["manual"] == {PendingReason.IN_OTHER_POOL: 1, PendingReason.APPROVAL: 2}


def test_a_pool_whose_division_is_not_in_its_status_yet_gives_no_new_orders() -> None:
    made = node_with(replace(pool(), status=PoolStatus()), approved="a")
    assert made.plan().assignments == ()
    made.settle()
    ordered = made.state.spec.assignments
    assert ordered
    made.pools["a"] = replace(made.pools["a"], status=PoolStatus())
    assert made.plan().assignments == ordered, "what is ordered stays"


def test_the_history_names_who_approved_a_card_and_who_withdrew_that() -> None:
    made = node_with(pool(), approved="a")
    (name,) = made.devices
    sign(made, name, "alice")
    made.settle()
    assert history(made, name) == ("Assigned to a", "alice")
    made.annotate(name, assignment=None)
    sign(made, name, "bob")
    made.settle()
    assert history(made, name) == ("Released from a", "bob")


def test_a_release_that_nobody_asked_for_is_the_controllers() -> None:
    made = node_with(pool(), approved="a")
    (name,) = made.devices
    sign(made, name, "alice")
    made.settle()
    made.delete_pool("a")
    made.settle()
    assert history(made, name) == ("Released from a", "gpu-pools")


def test_a_persons_reason_ends_in_the_history_and_not_in_the_next_one() -> None:
    made = node_with(pool("a"), pool("b", assignment=PoolAssignment(require_annotation=True)), approved="a")
    (name,) = made.devices
    made.annotate(name, reason="new\n rack\x1b[31m")
    made.settle()
    assert why(made, name) == ("Assigned to a", "new rack [31m")
    assert Annotation.REASON not in made.devices[name].metadata.annotations
    made.annotate(name, assignment="b")
    made.settle()
    assert why(made, name) == ("Assigned to b", "approved by annotation")
    assert made.devices[name].status.history[1].why == "approved for b"
    made.annotate(name, assignment=None, reason="goes back to its owner")
    made.settle()
    assert why(made, name) == ("Released from b", "goes back to its owner")
    assert Annotation.REASON not in made.devices[name].metadata.annotations


def test_the_reason_for_a_move_is_told_at_both_ends() -> None:
    made = node_with(pool("a"), pool("b"), approved="a")
    (name,) = made.devices
    made.settle()
    made.start_pod(name)
    made.annotate(name, assignment="b", reason="inference grows")
    made.settle()
    assert Annotation.REASON in made.devices[name].metadata.annotations, "a pod is in the way: it has not happened yet"
    made.end_pod(name)
    made.settle()
    latest, before, *_ = made.devices[name].status.history
    assert [latest.why, before.why] == ["inference grows", "inference grows"]


def test_the_reason_for_retiring_a_card_is_told_and_no_older_one() -> None:
    made = node_with(pool("a"), approved="a")
    (name,) = made.devices
    made.annotate(name, reason="x" * 2000)
    made.settle()
    assert why(made, name) == ("Assigned to a", "x" * 512)
    label(made, **{Label.IGNORE: "true"})
    made.annotate(name, reason="RMA 4711")
    made.settle()
    assert why(made, name) == ("Released from a", "the ignore label takes the card out of service: RMA 4711")


def test_a_reason_that_was_recorded_is_taken_off_although_the_controller_died_in_between() -> None:
    made = node_with(pool("a"), approved="a")
    (name,) = made.devices
    made.settle()
    made.annotate(name, reason="new rack")
    (card,) = made.plan().cards
    assert (card.take_reason, card.change) == (True, None)
    made.annotate(name, assignment="unknown")
    assert not made.plan().cards[0].take_reason, "the approval may still come true"


def why(made: NodeModel, name: str) -> tuple[str, str | None]:
    latest = made.devices[name].status.history[0]
    return latest.what, latest.why


def sign(made: NodeModel, name: str, who: str) -> None:
    """The webhook records who changed the approval."""
    device = made.devices[name]
    annotations = {**device.metadata.annotations, Annotation.APPROVED_BY: who}
    made.devices[name] = replace(device, metadata=replace(device.metadata, annotations=annotations))


def history(made: NodeModel, name: str) -> tuple[str, str]:
    latest = made.devices[name].status.history[0]
    return latest.what, latest.who


@pytest.mark.parametrize(("numa", "ordered"), [(NUMA.PREFERRED, None), (NUMA.IGNORED, NUMA.IGNORED)])
def test_orders_say_where_numa_plays_no_part(numa: NUMA, ordered: NUMA | None) -> None:
    made = node_with(pool(scheduling=Scheduling(numa=numa)), approved="a")
    made.settle()
    assert {order.numa for order in made.state.spec.assignments} == {ordered}


def test_no_more_cards_of_a_node_than_the_pool_allows_and_those_it_has_stay() -> None:
    made = node_with(pool(device_selector=DeviceSelector(max_devices_per_node=2)), cards=4)
    names = sorted(made.devices)
    made.annotate(names[3], assignment="a")
    made.settle()
    for name in names:
        made.annotate(name, assignment="a")
    made.settle()
    assert [name for name in names if made.claim(name)] == [names[0], names[3]]
    assert {card.reason for card in made.plan().pools.pending} == {PendingReason.NODE_LIMIT}


def test_a_fault_takes_the_state_but_not_the_pool() -> None:
    made = node_with(pool(), approved="a")
    made.settle()
    made.set_healthy(only(made), healthy=False)
    (card,) = made.plan().cards
    assert (card.state, card.pool, card.ordered) == (DeviceState.FAULTED, "a", True)


def test_a_node_that_is_no_longer_ready_keeps_what_it_has() -> None:
    made = node_with(pool(), approved="a")
    made.settle()
    made.set_ready(ready=False)
    assert [card.ordered for card in made.plan().cards] == [True]


def test_a_claim_comes_before_its_order() -> None:
    """A controller that dies after its first write must have written the claim, never the order."""
    made = node_with(pool(), approved="a")
    made.controller_acts(dies_after=1)
    assert made.claim(only(made)) == "a"
    assert made.state.spec.assignments == ()


def test_history_keeps_the_last_twenty_changes_newest_first() -> None:
    made = node_with(pool(), pool("b"), approved="a")
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
    "the report is not observed": {},
    "a card is missing": {"conditions": (READY, INCOMPLETE)},
    "inventory has no condition": {"conditions": (READY,)},
    "the driver has gone": {"driver": None},
    "the toolkit has gone": {"toolkit": None},
    "a check failed": {"validation": FAILED},
    "the driver is released": {"quiesced": Quiesced(since=NOW, reason="upgrade")},
    "another device plugin": {"plugin": Plugin(observed_generation=1, conflicts=("nvidia.com/gpu",))},
}
"""The status of a node that is still called ready, since bootstrap has not looked at it again."""


def overtaken(made: NodeModel, changes: dict[str, object]) -> NodeModel:
    """The node with all its cards, after these changes."""
    made.report_observed = bool(changes)
    made.state = replace(made.state, status=replace(made.state.status, device_count=len(made.devices), **changes))
    return made


def orders(made: NodeModel) -> list[str]:
    return [order.pool for order in made.state.spec.assignments]


@pytest.mark.parametrize("changes", OVERTAKEN.values(), ids=OVERTAKEN)
def test_nothing_is_written_while_the_readiness_of_the_node_is_overtaken(changes: dict[str, object]) -> None:
    new = overtaken(node_with(pool(), approved="a"), changes)
    assert new.controller_acts() == 0
    known = node_with(pool())
    known.settle()
    known.annotate(only(known), assignment="a")
    assert overtaken(known, changes).controller_acts() == 0


@pytest.mark.parametrize("changes", OVERTAKEN.values(), ids=OVERTAKEN)
def test_what_is_ordered_stays_ordered_while_readiness_is_overtaken(changes: dict[str, object]) -> None:
    made = node_with(pool(), approved="a")
    made.settle()
    made.start_pod(only(made))
    assert overtaken(made, changes).controller_acts() == 0
    assert orders(made) == ["a"]


def test_a_claimed_card_is_not_ordered_while_readiness_is_overtaken() -> None:
    """The controller died between the claim and the order."""
    made = node_with(pool(), approved="a")
    made.controller_acts(dies_after=1)
    assert made.claim(only(made)) == "a"
    made.report_observed = False
    made.settle()
    assert orders(made) == []
    made.report_observed = True
    made.settle()
    assert orders(made) == ["a"]


def test_a_card_leaves_its_pool_also_while_readiness_is_overtaken() -> None:
    made = node_with(pool(), approved="a")
    made.settle()
    made.report_observed = False
    made.annotate(only(made), assignment=None)
    made.settle()
    assert made.claim(only(made)) is None
