"""What the card shows during a test counts against it, what it showed before does not, and every sentence fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.agent.backends.interface import Readings, Signals
from gpu_control_plane.agent.burnin.program import ProgramRun
from gpu_control_plane.agent.burnin.results import Sample, fault_during_test, program_result
from gpu_control_plane.agent.health import HOT_CELSIUS
from gpu_control_plane.agent.vendors.nvidia.health import RULES
from gpu_control_plane.api.names import Reason

QUIET = Signals()


def sample(temperature: int | None = 60, **signals: object) -> Sample:
    return Sample(Signals(**signals), Readings(temperature=temperature))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        (QUIET, sample(), None),
        (QUIET, sample(None), None),
        (QUIET, sample(uncorrected_ecc=1), Reason.MEMORY_ERRORS),
        (Signals(uncorrected_ecc=3), sample(uncorrected_ecc=3), None),
        (Signals(uncorrected_ecc=3), sample(uncorrected_ecc=4), Reason.MEMORY_ERRORS),
        (QUIET, sample(remap_pending=True), Reason.MEMORY_ERRORS),
        (Signals(remap_pending=True), sample(remap_pending=True), None),
        (QUIET, sample(remap_failed=True), Reason.MEMORY_ERRORS),
        (QUIET, sample(xids=(63,)), Reason.MEMORY_ERRORS),
        (QUIET, sample(xids=(94,)), Reason.MEMORY_ERRORS),
        (Signals(xids=(63,)), sample(xids=(63,)), None),
        (Signals(xids=(63,)), sample(xids=(63, 48)), Reason.MEMORY_ERRORS),
        (QUIET, sample(xids=(43,)), None),
        (QUIET, sample(xids=(62,)), Reason.BURN_IN_FAILED),
        (QUIET, sample(overheated=True), Reason.TOO_HOT),
        (QUIET, sample(HOT_CELSIUS), Reason.TOO_HOT),
        (QUIET, sample(HOT_CELSIUS - 1), None),
        (QUIET, sample(lost=True, uncorrected_ecc=1), Reason.BURN_IN_FAILED),
    ],
)
def test_what_is_new_counts(before: Signals, now: Sample, reason: Reason | None) -> None:
    found = fault_during_test(before, now, RULES)
    assert (found.reason if found else None) == reason


def test_a_pass_says_how_hot_the_card_was() -> None:
    assert program_result(ProgramRun(message="Tested."), 71).message == "Tested. At most 71 °C."
    assert program_result(ProgramRun(message="Tested."), None).message == "Tested."


@given(st.sampled_from([Reason.BURN_IN_PASSED, Reason.MEMORY_ERRORS, Reason.BURN_IN_FAILED]), st.text(max_size=2000))
def test_every_sentence_fits_into_a_history_with_its_advice(reason: Reason, message: str) -> None:
    found = program_result(ProgramRun(reason=reason, message=message), 70)
    assert len(found.message) <= 512
    assert found.passed or found.message.endswith("to test it again.")
