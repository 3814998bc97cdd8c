"""What a pool says about itself, and that counting node by node gives what counting everything would."""

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
from gpu_control_plane.pools.status import pool_status
from gpu_control_plane.pools.tally import Standing, Tally, standing
from gpu_control_plane.rules.pool_validation import Fault
from unit.pools.model import NOW

POOL = GPUPool(metadata=ObjectMeta(name="training", generation=3), spec=PoolSpec())
OFFERING = node_state("worker-3")
SILENT = replace(OFFERING, status=NodeStateStatus())


def card(index: int, *, used: bool = False, faulted: bool = False, node: str = "worker-3") -> GPUDevice:
    made = device(node=node, index=index, used=used)
    return replace(made, status=replace(made.status, state=DeviceState.FAULTED)) if faulted else made


def share(cards: list[GPUDevice], state: GPUNodeState | None = OFFERING) -> Standing:
    found = standing(POOL, "worker-3", cards, state)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("cards", "state", "counted"),
    [
        ([card(0), card(1, used=True), card(2, faulted=True)], OFFERING, (3, 1, 1, 1)),
        ([card(0, used=True, faulted=True)], OFFERING, (1, 0, 0, 1)),
        ([card(0)], SILENT, (1, 0, 0, 0)),
        ([card(0, used=True)], SILENT, (1, 1, 0, 0)),
        ([card(0)], None, (1, 0, 0, 0)),
    ],
)
def test_a_unit_counts_once(
    cards: list[GPUDevice], state: GPUNodeState | None, counted: tuple[int, int, int, int]
) -> None:
    units = share(cards, state).units
    assert (units.total, units.used, units.available, units.faulted) == counted


def test_a_node_in_trouble_says_which_and_what_to_do() -> None:
    broken = share([card(0, faulted=True), card(1)], SILENT).trouble
    assert broken is not None
    assert (broken.cards, broken.reason) == (2, "Faulted")
    assert "0000:18:00.0" in (broken.message or "")
    assert "is the agent on the node running?" in (broken.message or "")


_nodes = st.sampled_from("abcdef")
_shares = st.one_of(
    st.none(),
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=8).map(
        lambda flags: share([card(i, used=used, faulted=faulted) for i, (used, faulted) in enumerate(flags)])
    ),
)


@given(st.lists(st.tuples(_nodes, _shares), max_size=30))
def test_counting_node_by_node_gives_what_counting_everything_would(
    changes: list[tuple[str, Standing | None]],
) -> None:
    tally = Tally()
    for node, standing_now in changes:
        tally.put(node, standing_now)
    last = {node: found for node, found in dict(changes).items() if found is not None}
    assert tally.nodes == len(last)
    assert tally.ready == sum(found.trouble is None for found in last.values())
    assert tally.offered == sum(found.offered for found in last.values())
    for field in ("total", "used", "reserved", "available", "faulted"):
        assert getattr(tally.units, field) == sum(getattr(found.units, field) for found in last.values())


def test_a_pool_names_its_twenty_worst_nodes_worst_first() -> None:
    tally = Tally()
    for number in range(30):
        faulted = [card(index, faulted=index <= number % 4) for index in range(8)]
        tally.put(f"node-{number:02}", standing(POOL, f"node-{number:02}", faulted, OFFERING))
    worst = pool_status(POOL, tally, None, NOW).nodes
    assert worst is not None
    assert len(worst.worst) == MAX_WORST_NODES
    assert [node.cards for node in worst.worst] == sorted((node.cards for node in worst.worst), reverse=True)


def _with(cards: list[GPUDevice], state: GPUNodeState | None = OFFERING) -> Tally:
    tally = Tally()
    tally.put("worker-3", standing(POOL, "worker-3", cards, state))
    return tally


@pytest.mark.parametrize(
    ("tally", "fault", "phase", "reason"),
    [
        (_with([]), None, PoolPhase.PENDING, Reason.NO_CARDS),
        (_with([card(0)], SILENT), None, PoolPhase.PENDING, Reason.NOT_OFFERED),
        (_with([card(0)]), None, PoolPhase.READY, Reason.CARDS_ON_OFFER),
        (_with([card(0, used=True)]), None, PoolPhase.READY, Reason.CARDS_ON_OFFER),
        (_with([card(0)]), Fault(Reason.NAME_COLLISION, "why"), PoolPhase.MISCONFIGURED, Reason.NAME_COLLISION),
    ],
)
def test_the_phase_and_its_reason(tally: Tally, fault: Fault | None, phase: PoolPhase, reason: Reason) -> None:
    status = pool_status(POOL, tally, fault, NOW)
    assert (status.phase, status.conditions[1].reason, status.observed_generation) == (phase, reason, 3)
