"""Cards that were approved before they were there: what they get, what overrules it, and what a crash leaves behind."""

import pytest

from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.names import Annotation, EventReason
from gpu_control_plane.inventory.plan import DeleteApproval, WriteHardware
from unit.inventory.model import NODE, NodeModel, actions, bare, card

A, B = pci_address(0), pci_address(1)
IGNORED = EventReason.APPROVAL_IGNORED


@pytest.fixture
def model() -> NodeModel:
    return NodeModel()


def test_a_card_that_appears_is_approved_before_a_pool_can_see_it(model: NodeModel) -> None:
    model.approve_beforehand(A, "a", pool="training", reason="rack 7")
    model.report(card(0, "a"))
    before_hardware = list(actions(model.plan()))
    written = next(number for number, each in enumerate(before_hardware) if isinstance(each, WriteHardware))
    for action in before_hardware[:written]:
        model.execute(action)
    assert model.approval(A) == "training"
    model.settle()
    assert model.at(A).metadata.annotations[Annotation.REASON] == "rack 7"
    assert not model.approvals


def test_holds_and_cards_out_of_service_are_kept_apart_from_the_start(model: NodeModel) -> None:
    model.approve_beforehand(A, "a", hold="wait for the new fan")
    model.approve_beforehand(B, "b", ignore=True)
    model.report(card(0, "a"), card(1, "b"))
    model.settle()
    assert (model.approval(A), model.approval(B)) == (None, None)
    assert model.at(A).metadata.annotations[Annotation.HOLD] == "wait for the new fan"
    assert model.at(B).ignored
    assert not model.approvals


def test_the_card_counts_and_not_its_address(model: NodeModel) -> None:
    model.approve_beforehand(A, "a", pool="training")
    model.report(card(1, "a"))
    model.settle()
    assert model.approval(B) == "training"


def test_another_card_at_the_address_is_not_approved_and_is_named(model: NodeModel) -> None:
    model.approve_beforehand(A, "a", pool="training")
    model.report(card(0, "other"))
    model.settle()
    (waiting,) = model.approvals.values()
    assert model.approval(A) is None
    assert waiting.status.message is not None
    assert f"Another card is at {A} of {NODE}: other." in waiting.status.message
    model.report(card(0, "a"))
    model.settle()
    assert (model.approval(A), model.approvals) == ("training", {})


def test_a_card_without_a_driver_waits_until_it_says_which_it_is(model: NodeModel) -> None:
    model.approve_beforehand(A, "a", pool="training")
    model.report(bare(0))
    model.settle()
    (waiting,) = model.approvals.values()
    assert "has yet to tell which card" in (waiting.status.message or "")
    assert model.approval(A) is None
    model.report(card(0, "a"))
    model.settle()
    assert (model.approval(A), model.approvals) == ("training", {})


def test_what_was_decided_since_stands(model: NodeModel) -> None:
    model.report(card(0, "a"))
    model.settle()
    model.approve(A, "inference")
    model.approve_beforehand(A, "a", pool="training")
    model.settle()
    assert (model.approval(A), model.approvals) == ("inference", {})
    assert model.events[-1] == IGNORED


def test_a_known_card_without_a_decision_is_approved(model: NodeModel) -> None:
    model.report(card(0, "a"))
    model.settle()
    model.approve_beforehand(A, "a", pool="training")
    model.settle()
    assert (model.approval(A), model.approvals) == ("training", {})
    assert IGNORED not in model.events


def test_what_a_replaced_card_was_approved_for_overrules_nothing(model: NodeModel) -> None:
    model.report(card(0, "old"))
    model.settle()
    model.approve(A, "inference")
    model.approve_beforehand(A, "new", pool="training")
    model.report(card(0, "new"))
    model.settle()
    assert (model.approval(A), model.approvals) == ("training", {})


@pytest.mark.parametrize("before", [None, "old", "new"], ids=["no card", "another card", "the card itself"])
def test_a_crash_after_any_write_loses_no_decision(before: str | None) -> None:
    start = NodeModel()
    if before is not None:
        start.report(card(0, before))
        start.settle()
        if before == "old":
            start.approve(A, "inference")
    start.approve_beforehand(A, "new", pool="training", hold="until Monday")
    start.report(card(0, "new"))
    whole = list(actions(start.plan()))
    assert any(isinstance(each, DeleteApproval) for each in whole)
    for dies_after in range(len(whole) + 1):
        model = start.copy()
        for action in whole[:dies_after]:
            model.execute(action)
        model.settle()
        assert model.approval(A) == "training", dies_after
        assert model.at(A).metadata.annotations[Annotation.HOLD] == "until Monday"
        assert not model.approvals
        assert IGNORED not in model.events
