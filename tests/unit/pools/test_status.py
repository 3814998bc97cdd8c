"""The status of a pool, and that counting node by node gives what counting everything would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpu_control_plane.api.examples import device, node_state
from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState, NodeStateStatus
from gpu_control_plane.api.gpupool import MAX_WORST_NODES, GPUPool, PoolPhase, PoolSpec
from gpu_control_plane.api.names import Reason
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.pools.capacity import NodeCapacity, PoolCapacity, node_capacity
from gpu_control_plane.pools.status import pool_status
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
    units = capacity_of(cards, state).units
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
    for field in ("total", "used", "reserved", "available", "faulted"):
        assert getattr(capacity.units, field) == sum(getattr(found.units, field) for found in last.values())


def test_a_pool_names_its_twenty_worst_nodes_worst_first() -> None:
    capacity = PoolCapacity()
    for number in range(30):
        faulted = [card(index, faulted=index <= number % 4) for index in range(8)]
        capacity.put(f"node-{number:02}", node_capacity(POOL, f"node-{number:02}", faulted, OFFERING))
    worst = pool_status(POOL, capacity, None, NOW).nodes
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
    status = pool_status(POOL, capacity, fault, NOW)
    assert (status.phase, status.conditions[1].reason, status.observed_generation) == (phase, reason, 3)
