"""The catalogue of XIDs as a table: what a program caused is never held against the card."""

import pytest

from gpu_control_plane.agent import health
from gpu_control_plane.agent.backends.interface import Recovery, Signals
from gpu_control_plane.agent.health import CONTAINED, REMAP_PENDING, WORKS, Verdict
from gpu_control_plane.agent.vendors.nvidia.health import (
    APPLICATION_XIDS,
    HARMLESS_XIDS,
    NODE_XIDS,
    NVLINK_XIDS,
    RESET_XIDS,
    RULES,
)

APPLICATION = [8, 11, 13, 25, 31, 32, 39, 40, 41, 45, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86]
APPLICATION += [88, 89, 94, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105]
IGNORED = [37, 38, 43, 44, 63, 66, 67, 92, 137, 154, 157]
RESET = [46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158]
NVLINK = [74, 144, 145, 146, 147, 148, 149, 150]
NODE = [79, 151]


def verdict(signals: Signals) -> Verdict:
    return health.verdict(signals, RULES)


@pytest.mark.parametrize("code", [*APPLICATION, *IGNORED])
def test_errors_of_programs_and_notices_leave_the_card_in_service(code: int) -> None:
    assert verdict(Signals(xids=(code,))) is WORKS


def test_the_classes_hold_exactly_the_codes_of_the_catalogue() -> None:
    assert sorted(APPLICATION) == sorted(APPLICATION_XIDS)
    assert sorted(IGNORED) == sorted(HARMLESS_XIDS)
    assert (sorted(RESET), sorted(NVLINK), sorted(NODE)) == (sorted(RESET_XIDS), sorted(NVLINK_XIDS), sorted(NODE_XIDS))


@pytest.mark.parametrize(
    ("codes", "advice"),
    [(RESET, "must be reset"), (NVLINK, "Check the links"), (NODE, "estart"), ([4711], "Look it up"), ([48], "Reset")],
)
def test_each_class_of_error_comes_with_what_to_do(codes: list[int], advice: str) -> None:
    for code in codes:
        assert advice in verdict(Signals(xids=(code,))).message


@pytest.mark.parametrize("code", [*RESET, *NVLINK, *NODE, 4711])
def test_errors_of_the_card_take_it_out_of_service_with_their_code_as_the_reason(code: int) -> None:
    found = verdict(Signals(xids=(code,)))
    assert (found.healthy, found.reason) == (False, f"XID{code}")
    assert found.message.startswith(f"XID {code}")


@pytest.mark.parametrize(
    ("signals", "reason"),
    [
        (Signals(xids=(48,)), "DoubleBitECC"),
        (Signals(uncorrected_ecc=1), "DoubleBitECC"),
        (Signals(lost=True, xids=(79,)), "LostFromBus"),
        (Signals(remap_failed=True), "RowRemapFailed"),
        (Signals(overheated=True), "Overheated"),
        (Signals(overheated=True, remap_pending=True), "Overheated"),
        (Signals(recovery=Recovery.RESET), "ResetRequired"),
        (Signals(recovery=Recovery.REBOOT), "RebootRequired"),
        (Signals(recovery=Recovery.DRAIN_P2P), "DrainRequired"),
        (Signals(recovery=Recovery.DRAIN_AND_RESET), "ResetRequired"),
        (Signals(recovery=Recovery.RECOVER_IMEX), "RecoverIMEX"),
        (Signals(recovery=Recovery.RESET, xids=(119, 154)), "XID119"),
        (Signals(xids=(62, 79)), "XID79"),
        (Signals(xids=(94, 95), uncorrected_ecc=1), "XID95"),
    ],
)
def test_the_worst_signal_is_the_reason(signals: Signals, reason: str) -> None:
    found = verdict(signals)
    assert (found.healthy, found.reason) == (False, reason)


def test_what_waits_for_a_reset_is_told_but_leaves_the_card_in_service() -> None:
    assert verdict(Signals(remap_pending=True, xids=(63,))) is REMAP_PENDING
    assert verdict(Signals(uncorrected_ecc=1, xids=(94,))) is CONTAINED
    assert verdict(Signals(uncorrected_ecc=1, xids=(63, 94), remap_pending=True)) is REMAP_PENDING


def test_an_application_error_after_a_fault_does_not_hide_it() -> None:
    assert verdict(Signals(xids=(79, 31))).reason == "XID79"
