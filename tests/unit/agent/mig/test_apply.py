"""Plans carried out on a driver: only the difference, never what is in use, and back again when it fails."""

from collections.abc import Callable

import pytest

from gpu_control_plane.agent.backends.interface import BackendError
from gpu_control_plane.agent.mig.apply import Outcome, Result, apply
from gpu_control_plane.api.allocation import MIG
from gpu_control_plane.rules.mig_layout import Geometry
from unit.agent.mig.cards import equal, layout, slots
from unit.agent.mig.driver import ADDRESS, Driver, Killed

SEVEN = slots(*(f"g1@{start}" for start in range(7)))
LARGE = layout(g4=1, g3=1)


def applied(driver: Driver, target: MIG | None, held: Geometry = frozenset(), holder: str | None = None) -> Outcome:
    return apply(driver, ADDRESS, target, dict.fromkeys(held, "ml/train-0"), holder)


def test_a_card_is_cut_from_nothing() -> None:
    driver = Driver(enabled=False)

    outcome = applied(driver, equal("1g.18gb"))

    assert outcome == Outcome(result=Result.APPLIED, wanted=SEVEN)
    assert driver.enabled
    assert driver.geometry == SEVEN


def test_a_second_run_changes_nothing() -> None:
    driver = Driver(enabled=False)
    applied(driver, LARGE)
    driver.calls.clear()

    assert applied(driver, LARGE).result is Result.APPLIED
    assert driver.changes == []


def test_only_the_difference_is_touched() -> None:
    driver = Driver(slots("g3@4", "g2@0", "g1@2"))
    kept = driver.uuid(next(iter(slots("g3@4"))))

    applied(driver, layout(g3=1, g2=2))

    assert driver.changes == ["destroy 1g.18gb@2", "create 2g.35gb@2"]
    assert driver.uuid(next(iter(slots("g3@4")))) == kept


def test_what_a_pod_holds_is_never_touched_and_is_named() -> None:
    driver = Driver(SEVEN)

    outcome = applied(driver, LARGE, held=slots("g1@5"))

    assert outcome.result is Result.WAITING
    assert outcome.reason == "3g.71gb@4 cannot be created while 1g.18gb@5 is in use by ml/train-0."
    assert driver.geometry == slots("g4@0", "g1@5")
    assert "destroy 1g.18gb@5" not in driver.calls


def test_a_program_the_driver_tells_about_counts_as_a_user() -> None:
    driver = Driver(slots("g1@5"))
    driver.runs(*slots("g1@5"))

    outcome = applied(driver, LARGE)

    assert outcome.reason == "3g.71gb@4 cannot be created while 1g.18gb@5 is in use by process 4005."
    assert driver.changes == ["create 4g.71gb@0"]


def test_a_user_nobody_knew_of_is_found_by_the_driver_and_respected() -> None:
    driver = Driver(SEVEN)
    driver.hides(slots("g1@5"))

    outcome = applied(driver, LARGE)

    assert outcome.result is Result.WAITING
    assert outcome.reason is not None
    assert "1g.18gb@5 is in use by a process outside Kubernetes (A program still runs on" in outcome.reason
    assert driver.geometry == slots("g4@0", "g1@5")

    driver.hides()
    assert applied(driver, LARGE).result is Result.APPLIED
    assert driver.geometry == slots("g4@0", "g3@4")


def test_a_busy_card_keeps_its_mode() -> None:
    driver = Driver(enabled=False)
    driver.hides(card=True)

    assert applied(driver, LARGE, holder="ml/train-0").result is Result.WAITING
    assert driver.changes == []

    outcome = applied(driver, LARGE)
    assert outcome.result is Result.WAITING
    assert outcome.reason == f"A program still uses the card at {ADDRESS}: its MIG mode cannot change."
    assert not driver.enabled


def test_a_mode_that_needs_a_reset_is_waited_for() -> None:
    driver = Driver(enabled=False)
    driver.reset_needed = True

    outcome = applied(driver, LARGE)

    assert outcome.result is Result.WAITING
    assert outcome.reason == "MIG mode is set to on and takes effect once the card is reset."
    assert driver.changes == ["mode on"]


def test_a_card_that_leaves_mig_becomes_whole() -> None:
    driver = Driver(SEVEN)

    assert applied(driver, None, held=slots("g1@5")).result is Result.WAITING
    assert driver.enabled
    assert driver.geometry == slots("g1@5")

    assert applied(driver, None) == Outcome(result=Result.APPLIED)
    assert not driver.enabled


def test_a_target_that_can_never_fit_leaves_the_card_alone() -> None:
    driver = Driver(SEVEN)

    outcome = applied(driver, layout(g3=2, g1=1))

    assert outcome == Outcome(result=Result.MISCONFIGURED, reason="The layout needs 9 of 8 memory slices.")
    assert driver.changes == []


def test_a_card_that_is_not_there_fails_without_harm() -> None:
    outcome = apply(Driver(), "0000:99:00.0", LARGE, {})

    assert outcome == Outcome(result=Result.FAILED, reason="There is no card at 0000:99:00.0.", rolled_back=True)


JOURNEYS = [
    pytest.param(lambda: Driver(enabled=False), LARGE, id="from nothing"),
    pytest.param(lambda: Driver(SEVEN), LARGE, id="from small to large"),
    pytest.param(lambda: Driver(slots("g4@0", "g3@4")), equal("1g.18gb"), id="from large to small"),
    pytest.param(lambda: Driver(SEVEN), None, id="back to whole"),
]


def calls_of(build: Callable[[], Driver], target: MIG | None) -> int:
    driver = build()
    applied(driver, target)
    return len(driver.calls)


@pytest.mark.parametrize("late", [False, True], ids=["refused", "done but reported as failed"])
@pytest.mark.parametrize(("build", "target"), JOURNEYS)
def test_a_failure_at_any_call_puts_the_card_back(build: Callable[[], Driver], target: MIG | None, late: bool) -> None:
    for at in range(calls_of(build, target)):
        driver = build()
        before = driver.geometry, driver.enabled
        driver.trouble, driver.at, driver.late = BackendError("The driver is tired."), at, late

        outcome = applied(driver, target)

        if late and outcome.result is Result.APPLIED:
            continue  # the trouble hit a call that only reads, and those have no late trouble
        assert outcome == Outcome(result=Result.FAILED, reason="The driver is tired.", rolled_back=True)
        assert (driver.geometry, driver.enabled) == before

        assert applied(driver, target).result is Result.APPLIED


def test_a_failure_that_cannot_be_undone_says_so() -> None:
    driver = Driver(SEVEN)
    driver.cuts_nothing = True

    outcome = applied(driver, LARGE)

    assert outcome == Outcome(result=Result.FAILED, reason="There is no room.", rolled_back=False)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("build", "target"), JOURNEYS)
def test_an_agent_killed_at_any_call_ends_the_same_after_a_restart(
    build: Callable[[], Driver],
    target: MIG | None,
    late: bool,
) -> None:
    straight = build()
    applied(straight, target)

    for at in range(len(straight.calls)):
        driver = build()
        driver.trouble, driver.at, driver.late = Killed(), at, late
        try:
            applied(driver, target)
        except Killed:
            applied(driver, target)

        assert (driver.geometry, driver.enabled) == (straight.geometry, straight.enabled)
