"""A dry run tells exactly what carrying out leads to, whatever the fleet looks like."""

from collections.abc import Callable
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpu_control_plane.actions.approvals import plan_approve, plan_reassign, plan_revoke
from gpu_control_plane.actions.card_plan import PASSING
from gpu_control_plane.actions.card_service import plan_hold, plan_release_hold, plan_retire, plan_unretire
from gpu_control_plane.actions.plan import Plan
from gpu_control_plane.actions.preview import preview_pool
from gpu_control_plane.api.allocation import MIG, Mode, PoolAllocation, TimeSlice
from gpu_control_plane.api.deviceselector import DeviceCriteria, DeviceSelector
from gpu_control_plane.api.gpupool import GPUPool, PoolAssignment, PoolSpec
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.views.fleet import Fleet
from unit.actions.fleets import carry_out, end_pods, fleet_of, totals
from unit.pools.model import NOW, NodeModel

CARDS = 4
POOLS = ("a", "b", "c")
SELECTORS = st.sampled_from(
    [
        None,
        DeviceSelector(max_devices_per_node=1),
        DeviceSelector(max_devices_per_node=2),
        DeviceSelector(include=DeviceCriteria(products=("*A100*",))),
    ]
)
ALLOCATIONS = st.sampled_from(
    [
        PoolAllocation(),
        PoolAllocation(mode=Mode.TIME_SLICE, time_slice=TimeSlice(replicas=3)),
        PoolAllocation(mode=Mode.MIG, mig=MIG(profile="1g.18gb")),
        PoolAllocation(mode=Mode.MIG, mig=MIG(profile="1g.10gb")),
    ]
)
ASSIGNMENTS = st.sampled_from([PoolAssignment(), PoolAssignment(), PoolAssignment(require_annotation=False)])
SPECS = st.builds(PoolSpec, device_selector=SELECTORS, allocation=ALLOCATIONS, assignment=ASSIGNMENTS)


def pool(name: str, age: int, spec: PoolSpec) -> GPUPool:
    return GPUPool(metadata=ObjectMeta(name=name, creation_timestamp=NOW - timedelta(seconds=age)), spec=spec)


@st.composite
def nodes(draw: st.DrawFn) -> NodeModel:
    """A node that has settled, with cards in every state."""
    model = NodeModel()
    for index in range(CARDS):
        model.add_card(index)
    for age, name in enumerate(draw(st.lists(st.sampled_from(POOLS), unique=True, min_size=1))):
        model.pools[name] = pool(name, age, draw(SPECS))
    for name, card in list(model.devices.items()):
        model.annotate(name, assignment=draw(st.sampled_from((*POOLS, "unknown", None, None))))
        model.annotate(name, hold=draw(st.sampled_from(("being moved", None, None))))
        if draw(st.integers(0, 5)) == 0:
            model.set_healthy(name, healthy=False)
        if draw(st.integers(0, 5)) == 0:
            held = model.devices[name]
            metadata = replace(held.metadata, labels={**card.metadata.labels, Label.IGNORE: "true"})
            model.devices[name] = replace(held, metadata=metadata)
    model.settle()
    for name in draw(st.lists(st.sampled_from(sorted(model.devices)), unique=True)):
        if name in model.offered():
            model.start_pod(name)
    model.set_ready(ready=draw(st.integers(0, 5)) > 0)
    model.settle()
    return model


ACTIONS: dict[str, Callable[[Fleet, list[str], str], Plan]] = {
    "approve": lambda fleet, names, target: plan_approve(fleet, names, target, "new rack"),
    "approve where it fits": lambda fleet, names, _: plan_approve(fleet, names, None),
    "reassign": plan_reassign,
    "revoke": lambda fleet, names, _: plan_revoke(fleet, names),
    "revoke and hold": lambda fleet, names, _: plan_revoke(fleet, names, hold=True),
    "hold": lambda fleet, names, _: plan_hold(fleet, names),
    "release": lambda fleet, names, _: plan_release_hold(fleet, names),
    "retire": lambda fleet, names, _: plan_retire(fleet, names, "RMA"),
    "take back": lambda fleet, names, _: plan_unretire(fleet, names),
}


@st.composite
def plans(draw: st.DrawFn, fleet: Fleet) -> Plan:
    names = draw(st.lists(st.sampled_from(sorted(fleet.cards)), unique=True, min_size=1))
    target = draw(st.sampled_from((*POOLS, "unknown")))
    return ACTIONS[draw(st.sampled_from(sorted(ACTIONS)))](fleet, names, target)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_dry_run_tells_exactly_what_carrying_out_leads_to(data: st.DataObject) -> None:
    model = data.draw(nodes())
    fleet = fleet_of(model)
    plan = data.draw(plans(fleet))
    before = {name: model.claim(name) for name in model.devices}

    # Every card that was named is edited, refused or as it should be.
    refused = {refusal.name for refusal in plan.refusals}
    edited = {edit.name for edit in plan.edits}
    assert not refused & edited
    assert not (refused | edited) & set(plan.unchanged)
    assert all(refusal.sentence for refusal in plan.refusals)

    carry_out(model, plan)
    moved = {change.card: change.after for change in plan.cards if change.after != before[change.card]}
    assert {name: model.claim(name) for name in model.devices} == {**before, **moved}
    expected = totals_of(fleet) | {(each.pool, each.resource): each.after for each in plan.units}
    assert totals(model) == {key: units for key, units in expected.items() if units}
    waits = {change.card for change in plan.cards if change.after is None and change.reason in {*map(str, PASSING)}}
    for edit in plan.edits:
        wanted = edit.annotations.get(Annotation.ASSIGNMENT)
        assert wanted is None or model.claim(edit.name) == wanted or edit.name in waits


@settings(max_examples=75, deadline=None)
@given(st.data())
def test_a_preview_tells_exactly_what_writing_the_pool_leads_to(data: st.DataObject) -> None:
    model = data.draw(nodes())
    fleet = fleet_of(model)
    written = GPUPool(
        metadata=ObjectMeta(name=data.draw(st.sampled_from(POOLS)), creation_timestamp=NOW), spec=data.draw(SPECS)
    )
    found = preview_pool(fleet, written)
    assert found.refusals == ()
    before = {name: model.claim(name) for name in model.devices}

    known = model.pools.get(written.name)
    made = replace(known, spec=written.spec) if known is not None else written
    if known is None:
        made = replace(made, metadata=replace(made.metadata, creation_timestamp=NOW + timedelta(seconds=1)))
    model.pools[written.name] = made
    holders = {name for name, held in model.holders.items() if held}
    end_pods(model)
    model.settle()
    moved = {change.card: change.after for change in found.cards}
    assert {name: model.claim(name) for name in model.devices} == {**before, **moved}
    expected = totals_of(fleet) | {(each.pool, each.resource): each.after for each in found.units}
    assert totals(model) == {key: units for key, units in expected.items() if units}
    if found.maintenance is not None:
        assert {each.card for each in found.maintenance.in_the_way} <= holders
    leaving = {change.card for change in found.cards if change.held_by}
    assert leaving <= holders


def totals_of(fleet: Fleet) -> dict[tuple[str, str], int]:
    return {
        (pool.name, capacity.name): capacity.total
        for pool in fleet.pools.values()
        for capacity in pool.status.capacity
        if capacity.total
    }
