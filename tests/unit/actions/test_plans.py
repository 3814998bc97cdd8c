"""What each action writes, refuses and says, case by case."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gpu_control_plane.actions.approvals import plan_approve, plan_reassign, plan_revoke, waiting_cards
from gpu_control_plane.actions.card_progress import Stage, assignment_progress, retirement_progress
from gpu_control_plane.actions.card_service import plan_clear_fault, plan_hold, plan_retire
from gpu_control_plane.actions.plan import UnitChange, basis_of
from gpu_control_plane.api.allocation import MIG, Mode, PoolAllocation
from gpu_control_plane.api.deviceselector import DeviceSelector
from gpu_control_plane.api.gpudevice import Telemetry
from gpu_control_plane.api.gpupool import GPUPool, PoolAssignment
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.views.fleet import Fleet, Missing
from unit.actions.fleets import carry_out, fleet_of
from unit.pools.model import NOW, NodeModel
from unit.pools.test_decide import A100_SLICES, H100, node_with, pool

AUTOMATIC = PoolAssignment(require_annotation=False)


def settled(*pools: GPUPool, cards: int = 2, approved: str | None = None) -> NodeModel:
    made = node_with(*pools, cards=cards, approved=approved)
    made.settle()
    return made


def names(fleet: Fleet) -> list[str]:
    return sorted(fleet.cards)


def faulted() -> Fleet:
    made = settled(pool("a"))
    for name in made.devices:
        made.set_healthy(name, healthy=False)
    made.settle()
    return fleet_of(made)


def ignored() -> Fleet:
    made = settled(pool("a"))
    carry_out(made, plan_retire(fleet_of(made), names(fleet_of(made))))
    return fleet_of(made)


@pytest.mark.parametrize(
    ("fleet", "target", "sentence"),
    [
        (lambda: fleet_of(settled(pool("training"))), "trainnig", "there is no pool trainnig; did you mean training?"),
        (lambda: fleet_of(settled(pool("a"))), "zz", "there is no pool zz: see kubectl gpu pools"),
        (
            lambda: fleet_of(settled(pool("a", device_selector=H100))),
            "a",
            "the pool a does not select it: see spec.deviceSelector of the pool",
        ),
        (
            lambda: fleet_of(settled(pool("a", allocation=A100_SLICES))),
            "a",
            "it cannot be divided as the pool a asks: MIG 1g.10gb",
        ),
        (
            lambda: fleet_of(settled(pool("a", device_selector=DeviceSelector(max_devices_per_node=0)))),
            "a",
            "the pool a takes no more cards of worker-3 (maxDevicesPerNode: 0)",
        ),
        (faulted, "a", "it has a fault (Because); once it is mended: kubectl gpu clear-fault CARD"),
        (ignored, "a", "it is retired; to take it back: kubectl gpu retire CARD --undo"),
        (lambda: fleet_of(settled(pool("a"))), None, ""),
        (lambda: fleet_of(settled(pool("a"), pool("b"))), None, "it could join a or b: say which, with --pool"),
        (
            lambda: fleet_of(settled(pool("a", device_selector=H100))),
            None,
            "no pool selects the card: see spec.deviceSelector of the pools",
        ),
        (
            lambda: fleet_of(settled(pool("a"), pool("b"), approved="a")),
            "b",
            "it is approved for a; to move it: kubectl gpu reassign CARD --to b",
        ),
    ],
)
def test_an_approval_that_leads_nowhere_is_refused_with_a_sentence(
    fleet: Callable[[], Fleet], target: str | None, sentence: str
) -> None:
    found = fleet()
    card = names(found)[0]
    plan = plan_approve(found, [card], target)
    assert [each.sentence for each in plan.refusals] == ([sentence.replace("CARD", card)] if sentence else [])
    assert [edit.name for edit in plan.edits] == ([] if sentence else [card])


def test_approving_says_what_it_leads_to_and_which_command_does_it() -> None:
    fleet = fleet_of(settled(pool("training"), cards=3))
    plan = plan_approve(fleet, names(fleet), "training", "it's new")
    assert plan.units == (UnitChange(pool="training", resource="gpu.deckhouse.io/training", before=0, after=3),)
    assert {change.after for change in plan.cards} == {"training"}
    assert plan.command == (f"kubectl gpu approve {' '.join(names(fleet))} --pool training --reason 'it'\"'\"'s new'")
    (body,) = {str(edit.body) for edit in plan.edits}
    wanted = {str(Annotation.ASSIGNMENT): "training", str(Annotation.REASON): "it's new"}
    assert body == str({"metadata": {"annotations": wanted}})


def test_of_several_cards_only_as_many_are_approved_as_the_pool_takes() -> None:
    fleet = fleet_of(settled(pool("a", device_selector=DeviceSelector(max_devices_per_node=2)), cards=4))
    plan = plan_approve(fleet, names(fleet), "a")
    assert (len(plan.edits), len(plan.refusals)) == (2, 2)
    assert [(each.before, each.after) for each in plan.units] == [(0, 2)]


def test_a_card_of_a_node_that_is_not_ready_is_approved_and_waits() -> None:
    made = settled(pool("a"), cards=1)
    made.set_ready(ready=False)
    made.settle()
    plan = plan_approve(fleet_of(made), sorted(made.devices), "a")
    assert [(change.after, change.reason) for change in plan.cards] == [(None, "NodeNotReady")]
    assert (len(plan.edits), plan.units) == (1, ())


def test_names_that_do_not_exist_are_absent() -> None:
    fleet = fleet_of(settled(pool("a")))
    (refusal,) = plan_approve(fleet, ["worker-3-0000-19-00-0"], "a").refusals
    assert refusal.absent
    assert refusal.sentence.startswith("there is no such card; did you mean worker-3-0000-")


def test_without_the_rights_to_read_nodes_nothing_is_foretold_and_nothing_written() -> None:
    fleet = replace(fleet_of(settled(pool("a"))), missing=(Missing(kind="nodes", why="you may not list nodes"),))
    plan = plan_approve(fleet, names(fleet), "a")
    assert plan.edits == ()
    assert {each.sentence for each in plan.refusals} == {"what this leads to cannot be told: you may not list nodes"}


def test_an_approval_for_a_pool_that_approves_by_itself_is_taken_back_with_a_hold() -> None:
    made = settled(pool("a", assignment=AUTOMATIC), cards=1)
    fleet = fleet_of(made)
    (card,) = names(fleet)
    (refusal,) = plan_revoke(fleet, [card]).refusals
    assert refusal.sentence.endswith(f"would take it at once: kubectl gpu revoke {card} --hold")
    plan = plan_revoke(fleet, [card], "too hot", hold=True)
    assert plan.edits[0].annotations == {
        Annotation.ASSIGNMENT: None,
        Annotation.REASON: "too hot",
        Annotation.HOLD: "too hot",
    }
    carry_out(made, plan)
    assert made.claim(card) is None


def test_who_holds_a_card_that_is_to_leave_is_named() -> None:
    made = settled(pool("a"), pool("b"), cards=1, approved="a")
    (card,) = made.devices
    made.start_pod(card)
    fleet = fleet_of(made)
    for plan in (plan_revoke(fleet, [card]), plan_reassign(fleet, [card], "b"), plan_retire(fleet, [card])):
        assert [change.held_by for change in plan.cards] == [("default/pod-0",)]


def test_moving_a_card_is_one_write_and_each_stage_is_told() -> None:
    made = settled(pool("a"), pool("b"), cards=1, approved="a")
    (card,) = made.devices
    made.start_pod(card)
    plan = plan_reassign(fleet_of(made), [card], "b")
    assert [(each.pool, each.before, each.after) for each in plan.units] == [("a", 1, 0), ("b", 0, 1)]
    made.annotate(card, assignment="b")
    made.settle()
    progress = assignment_progress(made.devices[card])
    assert (progress.stage, progress.sentence) == (Stage.DRAINING, "leaves a: waits for default/pod-0")
    made.end_pod(card)
    made.settle()
    assert assignment_progress(made.devices[card]).sentence == "in the pool b"
    assert plan_reassign(fleet_of(made), [card], "b").unchanged == (card,), "repeating it changes nothing"


def test_a_retired_card_is_safe_to_pull_when_nobody_has_it() -> None:
    made = settled(pool("a"), cards=1, approved="a")
    (card,) = made.devices
    made.start_pod(card)
    device = made.devices[card]
    labelled = replace(device, metadata=replace(device.metadata, labels={Label.IGNORE: "true"}))
    assert retirement_progress(labelled).stage is Stage.DRAINING
    made.devices[card] = labelled
    made.settle()
    assert retirement_progress(made.devices[card]).sentence == "leaves a: waits for default/pod-0"
    made.end_pod(card)
    made.settle()
    assert retirement_progress(made.devices[card]).done


def test_a_card_that_nobody_has_confirmed_is_not_safe_to_pull() -> None:
    made = settled(pool("a"), cards=1)
    (device,) = made.devices.values()
    labelled = replace(device, metadata=replace(device.metadata, labels={Label.IGNORE: "true"}))
    assert retirement_progress(labelled).stage is Stage.ORDERED


def test_only_a_broken_card_has_a_fault_to_clear() -> None:
    fleet = faulted()
    assert [edit.annotations for edit in plan_clear_fault(fleet, names(fleet)[:1]).edits] == [
        {Annotation.CLEAR_FAULT: "yes"}
    ]
    sound = fleet_of(settled(pool("a"), cards=1))
    assert plan_clear_fault(sound, names(sound)).edits == ()


def test_a_hold_is_written_once_and_says_when_it_takes_effect() -> None:
    made = settled(pool("a"), cards=1, approved="a")
    (card,) = made.devices
    plan = plan_hold(fleet_of(made), [card], "too hot")
    assert plan.notes[0].endswith(f"when their approval is taken back: kubectl gpu revoke {card}")
    made.annotate(card, hold="too hot")
    assert plan_hold(fleet_of(made), [card], "too hot").unchanged == (card,)
    assert plan_hold(fleet_of(made), [card]).unchanged == (card,), "no reason takes no reason away"


def test_cards_that_wait_are_found_by_node_and_model() -> None:
    fleet = fleet_of(settled(pool("a"), cards=2))
    assert len(waiting_cards(fleet)) == 2
    assert len(waiting_cards(fleet, nodes=["worker-3"], model="h200")) == 2
    assert waiting_cards(fleet, model="A100") == ()
    assert waiting_cards(fleet, model="h2?0") == ()
    assert waiting_cards(fleet, nodes=["worker-4"]) == ()


def test_readings_and_users_do_not_change_what_a_plan_rests_on() -> None:
    (device, *_) = settled(pool("a")).devices.values()
    read = replace(device, status=replace(device.status, telemetry=Telemetry(temperature=60, at=NOW)))
    moved = replace(device, metadata=replace(device.metadata, annotations={Annotation.ASSIGNMENT: "a"}))
    assert basis_of(read) == basis_of(device)
    assert basis_of(moved) != basis_of(device)


def test_units_are_counted_as_the_pool_divides_its_cards() -> None:
    fleet = fleet_of(settled(pool("a", allocation=PoolAllocation(mode=Mode.MIG, mig=MIG(profile="1g.18gb"))), cards=1))
    plan = plan_approve(fleet, names(fleet), "a")
    assert [(each.before, each.after) for each in plan.units] == [(0, 7)]
