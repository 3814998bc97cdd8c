"""What a card's burn-in means for pools: whether the card may join one, and what its history says about it. Pure.

An agent that burns cards in sets the condition BurnedIn on every card, before or together with its health. A card
without that condition needs no test.
"""

from collections.abc import Iterable

from gpu_control_plane.api.gpudevice import MAX_HISTORY, Change, GPUDevice
from gpu_control_plane.api.names import DeviceCondition
from gpu_control_plane.kube.conditions import FALSE, TRUE, find
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.pools.pending_reasons import PendingReason

WHO = "gpu-agent"
"""The component that tested the card, in its history."""
PASSED = "Burn-in passed"
FAILED = "Burn-in failed"


def burn_in_pending(device: GPUDevice) -> PendingReason | None:
    """Why the card may not be in a pool yet; None when it may.

    Cards that were in a pool when burn-in was switched on count as tested: their agent says so.
    """
    burned_in, record, hardware = _burned_in(device), device.status.burn_in, device.status.hardware
    if burned_in is None:
        return None
    if record is None or hardware is None or record.uuid != hardware.uuid:
        return PendingReason.BURN_IN  # the test was of another card
    return {TRUE: None, FALSE: PendingReason.BURN_IN_FAILED}.get(burned_in.status, PendingReason.BURN_IN)


def unrecorded_burn_in(device: GPUDevice) -> Change | None:
    """The test that has ended and is not in the card's history."""
    burned_in, record = _burned_in(device), device.status.burn_in
    if burned_in is None or record is None or record.ended_at is None:
        return None
    if any(_entries_of_test(device, device.status.history)):
        return None
    what = PASSED if burned_in.status == TRUE else f"{FAILED}: {burned_in.reason}"
    return Change(what=what, who=WHO, when=record.ended_at, why=burned_in.message or None)


def trimmed_history(device: GPUDevice, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The latest changes, and among them always the test that the card's status is about, so that it is recorded
    once."""
    kept = changes[:MAX_HISTORY]
    tests = tuple(_entries_of_test(device, changes))
    return kept if not tests or tests[0] in kept else (*kept[:-1], tests[0])


def _entries_of_test(device: GPUDevice, history: Iterable[Change]) -> Iterable[Change]:
    """Entries about the test that the card's status is about."""
    record = device.status.burn_in
    ended = record.ended_at if record else None
    return (change for change in history if ended and change.who == WHO and change.when == ended)


def _burned_in(device: GPUDevice) -> Condition | None:
    return find(device.status.conditions, DeviceCondition.BURNED_IN)
