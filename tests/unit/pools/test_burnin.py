"""A card that has to be tested joins no pool before it has passed, and its history has the result exactly once."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpu_control_plane.api.gpudevice import MAX_HISTORY, BurnIn
from gpu_control_plane.api.gpupool import PoolAssignment
from gpu_control_plane.api.names import DeviceCondition, Reason
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.pools.burnin import FAILED, PASSED, WHO
from gpu_control_plane.pools.decide import CardPlan
from gpu_control_plane.pools.pending_reasons import PendingReason
from unit.pools.model import NOW, NodeModel, holds
from unit.pools.test_decide import node_with, only, pool

OTHER = "GPU-00000000-0000-0000-0000-000000000000"


def report(made: NodeModel, status: str | None, *, uuid: str | None = None, ended: int | None = None) -> NodeModel:
    """The agent reports this of the node's only card; `ended` is in seconds from now."""
    device = made.devices[only(made)]
    assert device.status.hardware is not None
    conditions: tuple[Condition, ...] = (holds(DeviceCondition.HEALTHY, status=True),)
    record = None
    if status is not None:
        reason = {"True": Reason.BURN_IN_PASSED, "False": Reason.TOO_HOT}.get(status, Reason.BURNING_IN)
        burned_in = Condition(
            type=DeviceCondition.BURNED_IN, status=status, reason=reason, message="Because.", last_transition_time=NOW
        )
        conditions = (*conditions, burned_in)
        when = NOW + timedelta(seconds=ended) if ended is not None else None
        record = BurnIn(uuid=uuid or device.status.hardware.uuid or "", ended_at=when)
    made.devices[device.name] = replace(device, status=replace(device.status, conditions=conditions, burn_in=record))
    return made


class Recorder(NodeModel):
    """Keeps every record of a test that was ever written."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[str] = []

    def _write_card(self, card: CardPlan) -> None:
        super()._write_card(card)
        if card.tested is not None:
            self.recorded.append(card.tested.what)


def approved() -> NodeModel:
    return node_with(pool(), approved="a")


def burned(made: NodeModel) -> list[str]:
    return [change.what for change in made.devices[only(made)].status.history if change.who == WHO]


@pytest.mark.parametrize(
    ("made", "pending"),
    [
        (report(approved(), None), None),
        (report(approved(), "Unknown"), PendingReason.BURN_IN),
        (report(approved(), "True", ended=0), None),
        (report(approved(), "True"), None),
        (report(approved(), "False", ended=0), PendingReason.BURN_IN_FAILED),
        (report(approved(), "True", ended=0, uuid=OTHER), PendingReason.BURN_IN),
        (report(approved(), "False", ended=0, uuid=OTHER), PendingReason.BURN_IN),
    ],
    ids=["no burn-in", "under test", "passed", "in service", "failed", "another passed", "another failed"],
)
def test_only_a_card_that_passed_joins(made: NodeModel, pending: PendingReason | None) -> None:
    made.settle()
    (plan,) = made.plan().cards
    assert (plan.pending, plan.pool) == (pending, None if pending else "a")


def test_a_pool_that_approves_by_itself_waits_for_the_test_too() -> None:
    made = report(node_with(pool(assignment=PoolAssignment(require_annotation=False))), "Unknown")
    made.settle()
    assert made.claim(only(made)) is None
    report(made, "True", ended=0).settle()
    assert made.claim(only(made)) == "a"


def test_another_card_in_the_place_of_one_in_a_pool_leaves_it_and_comes_back_tested() -> None:
    made = report(node_with(pool(assignment=PoolAssignment(require_annotation=False))), "True", ended=0)
    made.settle()
    made.start_pod(only(made))
    report(made, "Unknown", uuid=OTHER).settle()
    assert made.claim(only(made)) == "a", "a card is never taken from a pod"
    made.end_pod(only(made))
    made.settle()
    (plan,) = made.plan().cards
    assert (made.claim(only(made)), plan.pending) == (None, PendingReason.BURN_IN)
    report(made, "True", ended=9).settle()
    assert made.claim(only(made)) == "a"
    assert burned(made) == [PASSED, PASSED]


@pytest.mark.parametrize(("status", "what"), [("True", PASSED), ("False", f"{FAILED}: {Reason.TOO_HOT}")])
def test_the_result_is_recorded_once_with_its_time_and_reason(status: str, what: str) -> None:
    made = report(approved(), "Unknown")
    made.settle()
    assert burned(made) == []
    report(made, status, ended=-5).settle()
    made.settle()
    (entry,) = [change for change in made.devices[only(made)].status.history if change.who == WHO]
    assert (entry.what, entry.when, entry.why) == (what, NOW - timedelta(seconds=5), "Because.")


def test_every_test_of_a_card_is_recorded() -> None:
    made = approved()
    for ended, status in enumerate(("False", "Unknown", "False", "True")):
        report(made, status, ended=None if status == "Unknown" else ended).settle()
    assert burned(made) == [PASSED, f"{FAILED}: {Reason.TOO_HOT}", f"{FAILED}: {Reason.TOO_HOT}"]


@given(st.lists(st.sampled_from(["approve", "withdraw", "die"]), max_size=60), st.integers(-3600, 3600))
@settings(max_examples=25, deadline=None)
def test_it_is_recorded_once_however_much_happens_afterwards(steps: list[str], ended: int) -> None:
    """Also where more happens than a history holds, and whatever time the clock of the node has."""
    made = report(node_with(pool(), approved="a", made=Recorder()), "True", ended=ended)
    for step in [*steps, *["withdraw", "approve"] * (MAX_HISTORY // 2 + 1)]:
        if step == "die":
            made.controller_acts(dies_after=1)
            continue
        made.annotate(only(made), assignment="a" if step == "approve" else None)
        made.settle()
    assert isinstance(made, Recorder)
    assert made.recorded == [PASSED]
    assert burned(made) == [PASSED]
    assert len(made.devices[only(made)].status.history) == MAX_HISTORY
