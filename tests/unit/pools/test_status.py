"""The status of a pool, and that counting node by node gives what counting everything would."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpu_control_plane.api.allocation import MIG, Mode, PoolAllocation, ProfileCount, TimeSlice
from gpu_control_plane.api.examples import device, node_state
from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice, User
from gpu_control_plane.api.gpunodestate import (
    Assignment,
    GPUNodeState,
    NodeStateSpec,
    NodeStateStatus,
    OrderProblem,
    Plugin,
    PluginResource,
    ProblemReason,
)
from gpu_control_plane.api.gpupool import (
    MAX_WORST_NODES,
    GPUPool,
    PoolCards,
    PoolPhase,
    PoolResource,
    PoolSpec,
    PoolStatus,
    Units,
    WaitingCards,
    WorstNode,
)
from gpu_control_plane.api.names import Annotation, Reason
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.pools.capacity import PoolCapacity
from gpu_control_plane.pools.node_capacity import NodeCapacity, node_capacity
from gpu_control_plane.pools.status import pool_status
from gpu_control_plane.pools.units import card_resources
from gpu_control_plane.rules.pool_validation import PoolFault
from unit.pools.model import NOW

POOL = GPUPool(metadata=ObjectMeta(name="training", generation=3), spec=PoolSpec())
OFFERING = node_state("worker-3")
WITHOUT_AGENT = replace(OFFERING, status=NodeStateStatus())


def card(index: int, *, used: bool = False, faulted: bool = False, node: str = "worker-3") -> GPUDevice:
    made = device(node=node, index=index, used=used)
    return replace(made, status=replace(made.status, state=DeviceState.FAULTED)) if faulted else made


def capacity_of(cards: list[GPUDevice], state: GPUNodeState | None = OFFERING) -> NodeCapacity:
    found = node_capacity(POOL, "worker-3", cards, state)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("cards", "state", "counted"),
    [
        ([card(0), card(1, used=True), card(2, faulted=True)], OFFERING, (3, 1, 1, 1)),
        ([card(0, used=True, faulted=True)], OFFERING, (1, 0, 0, 1)),
        ([card(0)], WITHOUT_AGENT, (1, 0, 0, 0)),
        ([card(0, used=True)], WITHOUT_AGENT, (1, 1, 0, 0)),
        ([card(0)], None, (1, 0, 0, 0)),
    ],
)
def test_a_unit_counts_once(
    cards: list[GPUDevice], state: GPUNodeState | None, counted: tuple[int, int, int, int]
) -> None:
    (units,) = capacity_of(cards, state).resources
    assert (units.total, units.used, units.available, units.faulted) == counted


def test_a_node_with_trouble_names_the_cards_and_what_to_do() -> None:
    broken = capacity_of([card(0, faulted=True), card(1)], WITHOUT_AGENT).trouble
    assert broken is not None
    assert (broken.cards, broken.reason) == (2, "Faulted")
    assert "0000:18:00.0" in (broken.message or "")
    assert "is the agent on the node running?" in (broken.message or "")


_nodes = st.sampled_from("abcdef")
_capacities = st.one_of(
    st.none(),
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=8).map(
        lambda flags: capacity_of([card(i, used=used, faulted=faulted) for i, (used, faulted) in enumerate(flags)])
    ),
)


@given(st.lists(st.tuples(_nodes, _capacities), max_size=30))
def test_counting_node_by_node_gives_what_counting_everything_would(
    changes: list[tuple[str, NodeCapacity | None]],
) -> None:
    capacity = PoolCapacity()
    for node, capacity_now in changes:
        capacity.put(node, capacity_now)
    last = {node: found for node, found in dict(changes).items() if found is not None}
    assert capacity.nodes == len(last)
    assert capacity.ready == sum(found.trouble is None for found in last.values())
    assert capacity.offered == sum(found.offered for found in last.values())
    (counted,) = capacity.resources((POOL.resource_name,))
    for field in ("total", "used", "reserved", "available", "faulted"):
        expected = sum(getattr(each, field) for found in last.values() for each in found.resources)
        assert getattr(capacity.units, field) == getattr(counted, field) == expected


def test_a_pool_names_its_twenty_worst_nodes_worst_first() -> None:
    capacity = PoolCapacity()
    for number in range(30):
        faulted = [card(index, faulted=index <= number % 4) for index in range(8)]
        capacity.put(f"node-{number:02}", node_capacity(POOL, f"node-{number:02}", faulted, OFFERING))
    worst = pool_status(POOL, capacity, None, None, NOW).nodes
    assert worst is not None
    assert len(worst.worst) == MAX_WORST_NODES
    assert [node.cards for node in worst.worst] == sorted((node.cards for node in worst.worst), reverse=True)


def _pool_with(cards: list[GPUDevice], state: GPUNodeState | None = OFFERING) -> PoolCapacity:
    capacity = PoolCapacity()
    capacity.put("worker-3", node_capacity(POOL, "worker-3", cards, state))
    return capacity


@pytest.mark.parametrize(
    ("capacity", "fault", "phase", "reason"),
    [
        (_pool_with([]), None, PoolPhase.PENDING, Reason.NO_CARDS),
        (_pool_with([card(0)], WITHOUT_AGENT), None, PoolPhase.PENDING, Reason.NOT_OFFERED),
        (_pool_with([card(0)]), None, PoolPhase.READY, Reason.CARDS_ON_OFFER),
        (_pool_with([card(0, used=True)]), None, PoolPhase.READY, Reason.CARDS_ON_OFFER),
        (
            _pool_with([card(0)]),
            PoolFault(Reason.NAME_COLLISION, "why"),
            PoolPhase.MISCONFIGURED,
            Reason.NAME_COLLISION,
        ),
    ],
)
def test_the_phase_and_its_reason(
    capacity: PoolCapacity, fault: PoolFault | None, phase: PoolPhase, reason: Reason
) -> None:
    status = pool_status(POOL, capacity, fault, None, NOW)
    assert (status.phase, status.conditions[1].reason, status.observed_generation) == (phase, reason, 3)


SLICES = PoolAllocation(mode=Mode.TIME_SLICE, time_slice=TimeSlice(replicas=4))
LAYOUT = PoolAllocation(
    mode=Mode.MIG, mig=MIG(layout=(ProfileCount(profile="1g.18gb", count=3), ProfileCount(profile="3g.71gb", count=1)))
)


def divided(allocation: PoolAllocation, **status: object) -> GPUPool:
    """The pool, with its cards divided like this."""
    spec = PoolSpec(allocation=allocation)
    return replace(POOL, spec=spec, status=PoolStatus(allocation=allocation.canonical, **status))  # type: ignore[arg-type]


def serving(pool: GPUPool, cards: list[GPUDevice], *, healthy: dict[str, int], **plugin: object) -> GPUNodeState:
    """A node that was ordered to offer these cards, and of whose units so many can be handed out."""
    orders = tuple(
        Assignment(
            inventory_id=each.name,
            pool=pool.name,
            resources=card_resources(pool, pool.allocation, each.status.hardware),
            allocation=pool.allocation,
        )
        for each in cards
    )
    listed = tuple(
        PluginResource(name=name, units=units, healthy=units, inventory_ids=tuple(each.name for each in cards))
        for name, units in healthy.items()
    )
    status = NodeStateStatus(plugin=Plugin(observed_generation=1, resources=listed, **plugin))  # type: ignore[arg-type]
    return GPUNodeState(metadata=ObjectMeta(name="worker-3"), spec=NodeStateSpec(assignments=orders), status=status)


def using(made: GPUDevice, *units: tuple[str, int]) -> GPUDevice:
    users = tuple(
        User(namespace="team", pod=f"pod-{number}", container="main", resource=resource, units=count)
        for number, (resource, count) in enumerate(units)
    )
    return replace(made, status=replace(made.status, used_by=users))


def counted(pool: GPUPool, cards: list[GPUDevice], state: GPUNodeState) -> dict[str, tuple[int, int, int, int]]:
    found = node_capacity(pool, "worker-3", cards, state)
    assert found is not None
    return {each.name: (each.total, each.used, each.available, each.faulted) for each in found.resources}


def test_time_slices_count_one_by_one() -> None:
    pool, name = divided(SLICES), POOL.resource_name
    cards = [using(card(0), (name, 1), (name, 2)), card(1), card(2, faulted=True)]
    assert counted(pool, cards, serving(pool, cards, healthy={name: 8})) == {name: (12, 3, 5, 4)}


def test_a_mixed_layout_counts_each_profile() -> None:
    pool, stem = divided(LAYOUT), POOL.resource_name
    small, large = f"{stem}.1g.18gb", f"{stem}.3g.71gb"
    cards = [using(card(0), (small, 2)), card(1)]
    state = serving(pool, cards, healthy={small: 6, large: 2})
    assert counted(pool, cards, state) == {small: (6, 2, 4, 0), large: (2, 0, 2, 0)}
    status = pool_status(pool, _counting(pool, cards, state), None, None, NOW)
    assert [each.name for each in status.capacity] == [small, large]
    assert status.units == Units(total=8, used=2, reserved=0, available=6, faulted=0)


def test_a_card_that_is_only_partly_partitioned_offers_what_there_is() -> None:
    """A pod holds an instance of the layout before: five of seven can be created beside it."""
    pool, name = divided(PoolAllocation(mode=Mode.MIG, mig=MIG(profile="1g.18gb"))), POOL.resource_name
    waiting = OrderProblem(inventory_id=card(0).name, reason=ProblemReason.WAITING, message="4g.71gb@0 is in use")
    state = serving(pool, [card(0)], healthy={name: 5}, problems=(waiting,))
    found = node_capacity(pool, "worker-3", [card(0)], state)
    assert found is not None
    assert (found.resources[0].total, found.resources[0].available) == (7, 5)
    assert (found.trouble and found.trouble.reason, found.problem) == ("Waiting", None)


def test_pods_that_hold_cards_under_the_name_before_are_counted() -> None:
    """`spec.resource.name` was changed: the agent offers the cards anew when their pods have ended."""
    held = using(card(0), ("gpu.example.com/before", 1))
    state = serving(POOL, [held], healthy={})
    found = node_capacity(POOL, "worker-3", [held], state)
    assert found is not None
    assert (found.resources[0].used, found.offered) == (1, 1)
    assert found.trouble is not None
    assert found.trouble.reason == "HeldUnderAnotherName"
    assert "gpu.example.com/before" in (found.trouble.message or "")
    assert "agent" not in (found.trouble.message or "")


def _counting(pool: GPUPool, cards: list[GPUDevice], state: GPUNodeState) -> PoolCapacity:
    capacity = PoolCapacity()
    capacity.put("worker-3", node_capacity(pool, "worker-3", cards, state))
    return capacity


def refused(pool: GPUPool, reason: ProblemReason) -> PoolCapacity:
    """Two nodes, of which one answers that it cannot do what was ordered."""
    problem = OrderProblem(inventory_id=card(0).name, reason=reason, message="The card has no profile 3g.71gb.")
    bad = serving(pool, [card(0)], healthy={}, problems=(problem,))
    capacity = _counting(pool, [card(0)], bad)
    names = dict.fromkeys(pool.names_with(pool.allocation), 16)
    good = [card(0, node="worker-4")]
    capacity.put("worker-4", node_capacity(pool, "worker-4", good, serving(pool, good, healthy=names)))
    return capacity


@pytest.mark.parametrize(
    ("allocation", "answer", "reason"),
    [
        (LAYOUT, ProblemReason.MISCONFIGURED, Reason.LAYOUT_MISMATCH),
        (PoolAllocation(), ProblemReason.MISCONFIGURED, Reason.ORDER_REFUSED),
        (LAYOUT, ProblemReason.FAILED, Reason.ORDER_FAILED),
    ],
)
def test_what_a_node_cannot_do_reaches_the_pool_and_the_others_go_on(
    allocation: PoolAllocation, answer: ProblemReason, reason: Reason
) -> None:
    pool = divided(allocation)
    status = pool_status(pool, refused(pool, answer), None, None, NOW)
    configured, ready = status.conditions
    assert (status.phase, configured.status, configured.reason) == (PoolPhase.MISCONFIGURED, "False", reason)
    assert "worker-3" in configured.message
    assert "no profile" in configured.message
    assert ready.status == "True", "the other node serves"
    assert status.nodes is not None
    assert [node.name for node in status.nodes.worst] == ["worker-3"]


def test_a_layout_that_did_not_match_needs_a_persons_word() -> None:
    pool = divided(LAYOUT)
    broken = pool_status(pool, refused(pool, ProblemReason.MISCONFIGURED), None, None, NOW)
    pool = replace(pool, status=broken)
    well = _pool_with([card(0)])
    mended = pool_status(pool, well, None, None, NOW)
    assert mended.phase is PoolPhase.MISCONFIGURED
    assert "kubectl annotate gpupool training gpu.deckhouse.io/confirm-layout=yes" in mended.conditions[0].message
    pool = replace(pool, status=mended)
    assert pool_status(pool, well, None, None, NOW) == mended
    confirmed = replace(pool, metadata=replace(pool.metadata, annotations={Annotation.CONFIRM_LAYOUT: "yes"}))
    assert pool_status(confirmed, well, None, None, NOW).phase is PoolPhase.READY
    too_early = replace(confirmed, status=broken)
    still = pool_status(too_early, refused(pool, ProblemReason.MISCONFIGURED), None, None, NOW)
    assert still.phase is PoolPhase.MISCONFIGURED
    changed = replace(pool, spec=PoolSpec(allocation=SLICES))
    assert pool_status(changed, well, None, None, NOW).phase is not PoolPhase.MISCONFIGURED


def test_a_driver_that_refused_and_then_did_not_needs_nobodys_word() -> None:
    pool = divided(LAYOUT)
    pool = replace(pool, status=pool_status(pool, refused(pool, ProblemReason.FAILED), None, None, NOW))
    assert pool_status(pool, _pool_with([card(0)]), None, None, NOW).phase is PoolPhase.READY


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        (None, "no card is in the pool"),
        (PoolCards(selected=0), "spec.deviceSelector selects none"),
        (
            PoolCards(selected=12, waiting=(WaitingCards(reason="AwaitingApproval", cards=12),)),
            "12 cards are selected, and each waits for an approval: `kubectl annotate gpudevice NAME",
        ),
        (
            PoolCards(selected=3, waiting=(WaitingCards(reason="InOtherPool", cards=3),)),
            "3 cards are selected (3 InOtherPool)",
        ),
    ],
)
def test_a_pool_without_cards_says_how_many_it_selects(cards: PoolCards | None, words: str) -> None:
    status = pool_status(POOL, PoolCapacity(), None, cards, NOW)
    assert words in status.conditions[1].message
    assert status.cards == cards


def test_a_status_is_bounded_whatever_the_names() -> None:
    layout = tuple(ProfileCount(profile=f"{slices}g.{slices}gb", count=1) for slices in range(1, 17))
    pool = replace(
        divided(PoolAllocation(mode=Mode.MIG, mig=MIG(layout=layout))),
        spec=PoolSpec(
            resource=PoolResource(name=f"{'a' * 240}/{'b' * 50}"),
            allocation=PoolAllocation(mode=Mode.MIG, mig=MIG(layout=layout)),
        ),
    )
    capacity = PoolCapacity()
    for number in range(40):
        node = f"{'n' * 240}-{number}"
        trouble = WorstNode(name=node, cards=8, reason="Faulted", message="x" * 256)
        capacity.put(node, NodeCapacity((), 0, trouble))
    assert len(msgspec.json.encode(pool_status(pool, capacity, None, None, NOW))) <= 16 * 1024


def test_a_pool_that_is_being_deleted_says_so_and_what_it_waits_for() -> None:
    going = replace(POOL, metadata=replace(POOL.metadata, deletion_timestamp=NOW))
    status = pool_status(going, _pool_with([card(0, used=True), card(1)]), None, None, NOW)
    assert (status.phase, status.conditions[1].reason) == (PoolPhase.DELETING, Reason.DELETING)
    assert "1 unit in use" in status.conditions[1].message
