"""A pool whose cards are to be divided anew: what nodes are ordered at each stage, and what the pool says."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.allocation import MIG, Mode, PoolAllocation, TimeSlice
from gpu_control_plane.api.gpupool import Maintenance, MaintenanceStrategy, PoolMaintenance, PoolPhase, PoolStatus
from gpu_control_plane.api.names import EventReason, Reason
from gpu_control_plane.pools.capacity import PoolCapacity
from gpu_control_plane.pools.events import record_pool
from gpu_control_plane.pools.maintenance import is_changing
from gpu_control_plane.pools.node_capacity import NodeCapacity
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.pools.status import pool_status
from unit.pools.model import NOW, NodeModel
from unit.pools.test_decide import node_with, pool
from unit.pools.test_events import Recorded

SLICES = PoolAllocation(mode=Mode.TIME_SLICE, time_slice=TimeSlice(replicas=4))
INSTANCES = PoolAllocation(mode=Mode.MIG, mig=MIG(profile="1g.18gb"))
A100 = PoolAllocation(mode=Mode.MIG, mig=MIG(profile="1g.10gb"))
WHOLE = PoolAllocation()
BY_NODE = PoolMaintenance(strategy=MaintenanceStrategy.NODE)


def running(cards: int = 2, pods: int = 1, **spec: object) -> NodeModel:
    """A node whose cards are in the pool `a`, some of them in use."""
    made = node_with(pool(**spec), cards=cards, approved="a")  # type: ignore[arg-type]
    made.settle()
    for name in sorted(made.devices)[:pods]:
        made.start_pod(name)
    made.settle()
    return made


def change(made: NodeModel, allocation: PoolAllocation) -> None:
    known = made.pools["a"]
    made.pools["a"] = replace(known, spec=replace(known.spec, allocation=allocation))
    made.settle()


def orders(made: NodeModel) -> list[str]:
    return [str(order.allocation) for order in made.state.spec.assignments]


def maintenance(made: NodeModel) -> Maintenance:
    found = made.pools["a"].status.maintenance
    assert found is not None
    return found


def status(made: NodeModel, **changes: object) -> PoolStatus:
    known = replace(made.pools["a"], **changes)
    return pool_status(known, made.capacity(known), None, None, NOW)


def test_nothing_is_ordered_while_a_pod_holds_what_there_was() -> None:
    made = running()
    change(made, INSTANCES)
    assert orders(made) == []
    assert made.offered() == {}
    assert all(made.claim(name) == "a" for name in made.devices), "the cards stay in the pool"
    under_way = maintenance(made)
    assert (under_way.reason, under_way.units_in_use) == ("Exclusive → MIG 1g.18gb", 1)
    assert (under_way.nodes_done, under_way.nodes_total) == (0, 1)
    said = status(made)
    assert (said.phase, said.conditions[1].reason) == (PoolPhase.MAINTENANCE, Reason.MAINTENANCE)
    assert said.conditions[1].message == "Exclusive → MIG 1g.18gb: 0 of 1 node done, 1 unit in use"


def test_when_the_last_pod_has_ended_the_cards_are_divided_anew() -> None:
    made = running()
    change(made, INSTANCES)
    made.end_pod(min(made.devices))
    made.settle()
    assert orders(made) == ["MIG 1g.18gb"] * 2
    assert made.pools["a"].status.maintenance is None
    said = status(made)
    assert (said.phase, said.capacity[0].available) == (PoolPhase.READY, 14)
    history = made.devices[min(made.devices)].status.history
    assert [entry.what for entry in history] == ["Divided as MIG 1g.18gb", "Assigned to a"]


def test_the_pool_stays_in_maintenance_until_the_nodes_offer_what_was_ordered() -> None:
    made = running(pods=0)
    known = made.pools["a"]
    made.pools["a"] = replace(known, spec=replace(known.spec, allocation=INSTANCES))
    made.controller_acts()
    made.agent_acts()
    made.controller_acts()
    assert not is_changing(made.pools["a"])
    assert orders(made) == ["MIG 1g.18gb"] * 2
    assert status(made).phase is PoolPhase.MAINTENANCE, "the agent has not answered"
    made.agent_acts()
    made.pools_act()
    assert status(made).phase is PoolPhase.READY


@pytest.mark.parametrize("strategy", [PoolMaintenance(), BY_NODE])
def test_reverting_the_spec_takes_it_back(strategy: PoolMaintenance) -> None:
    made = running(maintenance=strategy)
    change(made, INSTANCES)
    change(made, PoolAllocation())
    assert orders(made) == ["Exclusive"] * 2
    assert made.pools["a"].status.maintenance is None
    assert made.holders, "the pod was not touched"


def test_a_second_change_does_not_begin_anew() -> None:
    made = running()
    change(made, INSTANCES)
    made.pools_act(NOW + timedelta(hours=1))
    change(made, SLICES)
    assert (maintenance(made).since, maintenance(made).reason) == (NOW, "Exclusive → TimeSlice 4")
    made.end_pod(min(made.devices))
    made.settle()
    assert orders(made) == ["TimeSlice 4"] * 2


def test_cards_that_cannot_be_divided_like_that_leave_when_it_is_their_turn() -> None:
    made = running()
    change(made, A100)
    assert all(made.claim(name) == "a" for name in made.devices)
    made.end_pod(min(made.devices))
    made.settle()
    assert [card.reason for card in made.plan().pools.pending] == [PendingReason.MODE_UNSUPPORTED] * 2
    assert made.pools["a"].status.maintenance is None


def test_node_by_node_the_pool_goes_on_serving_and_cards_change_as_pods_end() -> None:
    made = running(maintenance=BY_NODE)
    change(made, INSTANCES)
    assert maintenance(made).node == "worker-3"
    assert orders(made) == ["MIG 1g.18gb"] * 2, "the agent divides each card when it is free"
    assert list(made.offered()) == [max(made.devices)], "the free card is divided already"
    said = status(made)
    assert said.phase is PoolPhase.READY
    assert said.maintenance is not None
    assert said.maintenance.units_in_use == 1
    made.end_pod(min(made.devices))
    made.settle()
    assert not is_changing(made.pools["a"])
    assert made.pools["a"].status.maintenance is None


def node(ordered: PoolAllocation, used: int, *, unfinished: bool = False, absent: bool = False) -> NodeCapacity:
    return NodeCapacity(
        resources=(),
        offered=0,
        used=used,
        ordered=ordered.canonical,
        complete=not used,
        unfinished=unfinished,
        absent=absent,
    )


@pytest.mark.parametrize(
    ("nodes", "turn"),
    [
        pytest.param({"a": node(WHOLE, 2), "b": node(WHOLE, 1)}, "b", id="the fewest pods"),
        pytest.param({"a": node(WHOLE, 1, absent=True), "b": node(WHOLE, 2)}, "b", id="not ready is last"),
        pytest.param({"a": node(INSTANCES, 1, unfinished=True), "b": node(WHOLE, 0)}, None, id="a free card is left"),
        pytest.param({"a": node(INSTANCES, 1), "b": node(WHOLE, 0)}, "b", id="only pods are waited for"),
        pytest.param({"a": node(INSTANCES, 1), "b": node(INSTANCES, 0)}, None, id="all have begun"),
    ],
)
def test_node_by_node_whose_turn_it_is(nodes: dict[str, NodeCapacity], turn: str | None) -> None:
    known = pool(maintenance=BY_NODE, allocation=INSTANCES)
    known = replace(known, status=PoolStatus(allocation=WHOLE.canonical))
    capacity = PoolCapacity()
    for name, found in nodes.items():
        capacity.put(name, found)
    said = pool_status(known, capacity, None, None, NOW).maintenance
    assert said is not None
    assert (said.node, said.nodes_total) == (turn, 2)
    assert said.units_in_use == sum(found.used for found in nodes.values())


@pytest.mark.parametrize("strategy", MaintenanceStrategy)
def test_past_the_deadline_it_says_so_and_goes_on(strategy: MaintenanceStrategy) -> None:
    made = running(maintenance=PoolMaintenance(strategy=strategy, deadline="30m"))
    change(made, INSTANCES)
    known = made.pools["a"]
    before = pool_status(known, made.capacity(known), None, None, NOW)
    assert maintenance(made).deadline == NOW + timedelta(minutes=30)
    known = replace(known, status=before)
    late = pool_status(known, made.capacity(known), None, None, NOW + timedelta(minutes=30))
    assert late.conditions[2].reason == Reason.MAINTENANCE_OVERDUE
    assert (late.phase, late.maintenance) == (before.phase, before.maintenance), "it goes on"
    told = Recorded()
    record_pool(told, known, late)  # type: ignore[arg-type]
    ((_, reason, note),) = told.events
    assert (reason, "1 unit in use" in note) == (EventReason.POOL_MAINTENANCE_OVERDUE, True)
    told.events.clear()
    record_pool(told, replace(known, status=late), late)  # type: ignore[arg-type]
    assert told.events == [], "it is told once"


UNDER_WAY = Maintenance(
    since=NOW, reason="Exclusive → MIG 1g.18gb", units_in_use=0, nodes_done=0, nodes_total=1, deadline=NOW
)


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        (
            PoolStatus(allocation=WHOLE.canonical),
            PoolStatus(allocation=WHOLE.canonical, maintenance=UNDER_WAY),
            "begins: Exclusive → MIG 1g.18gb; pods that run go on",
        ),
        (
            PoolStatus(allocation=WHOLE.canonical, maintenance=UNDER_WAY),
            PoolStatus(allocation=INSTANCES.canonical, maintenance=UNDER_WAY),
            "no pod is in the way any more: Exclusive → MIG 1g.18gb",
        ),
        (
            PoolStatus(allocation=INSTANCES.canonical, maintenance=UNDER_WAY),
            PoolStatus(allocation=INSTANCES.canonical),
            "ended: the cards are divided as MIG 1g.18gb",
        ),
        (
            PoolStatus(allocation=WHOLE.canonical, maintenance=UNDER_WAY),
            PoolStatus(allocation=WHOLE.canonical),
            "ended: the cards are divided as Exclusive",
        ),
    ],
)
def test_each_stage_is_told(before: PoolStatus, after: PoolStatus, note: str) -> None:
    told = Recorded()
    record_pool(told, replace(pool(), status=before), after)  # type: ignore[arg-type]
    assert told.events == [("GPUPool", EventReason.POOL_MAINTENANCE, note)]
