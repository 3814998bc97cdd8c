"""What a card's burn-in means for pools: whether the card may join one, and what its history says about it. Pure.

A node's agent that burns cards in says so in the condition BurnedIn of every card, before or together with its health.
Where there is no such condition, nobody asks for a test.
"""

from collections.abc import Iterable

from gpu_control_plane.api.gpudevice import MAX_HISTORY, Change, GPUDevice
from gpu_control_plane.api.names import DeviceCondition
from gpu_control_plane.kube.conditions import FALSE, TRUE, find
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.pools.words import Waits

WHO = "gpu-agent"
"""Who tested the card."""
PASSED = "Burn-in passed"
FAILED = "Burn-in failed"


def untested(device: GPUDevice) -> Waits | None:
    """Why the card may not be in a pool yet; None when it may.

    Cards that were in a pool when burn-in was switched on count as tested: their agent says so.
    """
    said, record, hardware = _said(device), device.status.burn_in, device.status.hardware
    if said is None:
        return None
    if record is None or hardware is None or record.uuid != hardware.uuid:
        return Waits.BURN_IN  # that was about another card
    return {TRUE: None, FALSE: Waits.BURN_IN_FAILED}.get(said.status, Waits.BURN_IN)


def unrecorded(device: GPUDevice) -> Change | None:
    """The test that has ended and is not in the card's history."""
    said, record = _said(device), device.status.burn_in
    if said is None or record is None or record.ended_at is None or any(_about(device, device.status.history)):
        return None
    what = PASSED if said.status == TRUE else f"{FAILED}: {said.reason}"
    return Change(what=what, who=WHO, when=record.ended_at, why=said.message or None)


def remembered(device: GPUDevice, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The latest changes, and among them always the test that the card's status is about, so it is recorded once."""
    kept = changes[:MAX_HISTORY]
    tests = tuple(_about(device, changes))
    return kept if not tests or tests[0] in kept else (*kept[:-1], tests[0])


def _about(device: GPUDevice, history: Iterable[Change]) -> Iterable[Change]:
    """Entries about the test that the card's status is about."""
    record = device.status.burn_in
    ended = record.ended_at if record else None
    return (change for change in history if ended and change.who == WHO and change.when == ended)


def _said(device: GPUDevice) -> Condition | None:
    return find(device.status.conditions, DeviceCondition.BURNED_IN)
