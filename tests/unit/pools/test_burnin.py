"""A card that has to be tested joins no pool before it has passed, and its history tells the result exactly once."""

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
from gpu_control_plane.pools.words import Waits
from unit.pools.model import NOW, World, holds
from unit.pools.test_decide import only, pool, world

OTHER = "GPU-00000000-0000-0000-0000-000000000000"


def say(made: World, status: str | None, *, uuid: str | None = None, ended: int | None = None) -> World:
    """What the agent says of the node's only card; `ended` is in seconds from now."""
    device = made.devices[only(made)]
    assert device.status.hardware is not None
    conditions: tuple[Condition, ...] = (holds(DeviceCondition.HEALTHY, status=True),)
    record = None
    if status is not None:
        reason = {"True": Reason.BURN_IN_PASSED, "False": Reason.TOO_HOT}.get(status, Reason.BURNING_IN)
        said = Condition(
            type=DeviceCondition.BURNED_IN, status=status, reason=reason, message="Because.", last_transition_time=NOW
        )
        conditions = (*conditions, said)
        when = NOW + timedelta(seconds=ended) if ended is not None else None
        record = BurnIn(uuid=uuid or device.status.hardware.uuid or "", ended_at=when)
    made.devices[device.name] = replace(device, status=replace(device.status, conditions=conditions, burn_in=record))
    return made


class Recorder(World):
    """Keeps every record of a test that was ever written."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[str] = []

    def _write_card(self, card: CardPlan) -> None:
        super()._write_card(card)
        if card.tested is not None:
            self.recorded.append(card.tested.what)


def approved() -> World:
    return world(pool(), approved="a")


def burned(made: World) -> list[str]:
    return [change.what for change in made.devices[only(made)].status.history if change.who == WHO]


@pytest.mark.parametrize(
    ("made", "waits"),
    [
        (say(approved(), None), None),
        (say(approved(), "Unknown"), Waits.BURN_IN),
        (say(approved(), "True", ended=0), None),
        (say(approved(), "True"), None),
        (say(approved(), "False", ended=0), Waits.BURN_IN_FAILED),
        (say(approved(), "True", ended=0, uuid=OTHER), Waits.BURN_IN),
        (say(approved(), "False", ended=0, uuid=OTHER), Waits.BURN_IN),
    ],
    ids=["nobody tests", "under test", "passed", "in service", "failed", "another passed", "another failed"],
)
def test_only_a_card_that_passed_joins(made: World, waits: Waits | None) -> None:
    made.settle()
    (plan,) = made.plan().cards
    assert (plan.waits, plan.pool) == (waits, None if waits else "a")


def test_a_pool_that_approves_by_itself_waits_for_the_test_too() -> None:
    made = say(world(pool(assignment=PoolAssignment(require_annotation=False))), "Unknown")
    made.settle()
    assert made.claim(only(made)) is None
    say(made, "True", ended=0).settle()
    assert made.claim(only(made)) == "a"


def test_another_card_in_the_place_of_one_in_a_pool_leaves_it_and_comes_back_tested() -> None:
    made = say(world(pool(assignment=PoolAssignment(require_annotation=False))), "True", ended=0)
    made.settle()
    made.start_pod(only(made))
    say(made, "Unknown", uuid=OTHER).settle()
    assert made.claim(only(made)) == "a", "nobody takes a card from a pod"
    made.end_pod(only(made))
    made.settle()
    (plan,) = made.plan().cards
    assert (made.claim(only(made)), plan.waits) == (None, Waits.BURN_IN)
    say(made, "True", ended=9).settle()
    assert made.claim(only(made)) == "a"
    assert burned(made) == [PASSED, PASSED]


@pytest.mark.parametrize(("status", "what"), [("True", PASSED), ("False", f"{FAILED}: {Reason.TOO_HOT}")])
def test_the_result_is_recorded_once_with_its_time_and_reason(status: str, what: str) -> None:
    made = say(approved(), "Unknown")
    made.settle()
    assert burned(made) == []
    say(made, status, ended=-5).settle()
    made.settle()
    (entry,) = [change for change in made.devices[only(made)].status.history if change.who == WHO]
    assert (entry.what, entry.when, entry.why) == (what, NOW - timedelta(seconds=5), "Because.")


def test_every_test_of_a_card_is_recorded() -> None:
    made = approved()
    for ended, status in enumerate(("False", "Unknown", "False", "True")):
        say(made, status, ended=None if status == "Unknown" else ended).settle()
    assert burned(made) == [PASSED, f"{FAILED}: {Reason.TOO_HOT}", f"{FAILED}: {Reason.TOO_HOT}"]


@given(st.lists(st.sampled_from(["approve", "withdraw", "die"]), max_size=60), st.integers(-3600, 3600))
@settings(max_examples=25, deadline=None)
def test_it_is_recorded_once_however_much_happens_afterwards(happenings: list[str], ended: int) -> None:
    """Also where more happens than a history holds, and whatever the clock of the node says."""
    made = say(world(pool(), approved="a", made=Recorder()), "True", ended=ended)
    for happening in [*happenings, *["withdraw", "approve"] * (MAX_HISTORY // 2 + 1)]:
        if happening == "die":
            made.controller_acts(dies_after=1)
            continue
        made.annotate(only(made), assignment="a" if happening == "approve" else None)
        made.settle()
    assert isinstance(made, Recorder)
    assert made.recorded == [PASSED]
    assert burned(made) == [PASSED]
    assert len(made.devices[only(made)].status.history) == MAX_HISTORY
