"""What people ask of a card, by annotation or label, and is not done. Pure.

Nothing refuses a mistyped annotation: the card itself has to say that it was read and not followed.
"""

from collections.abc import Iterator
from difflib import get_close_matches

import msgspec

from gpu_control_plane.api.gpudevice import MAX_MESSAGE, GPUDevice
from gpu_control_plane.api.names import Annotation, EventReason, Label
from gpu_control_plane.pools.desired_pool import DesiredPool
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.pools.snapshot import Snapshot

_KNOWN_VALUES = frozenset({None, "", "true", "false"})


class IgnoredRequest(msgspec.Struct, frozen=True):
    """A request that is not followed: the Event about it, and a sentence that says why and what to do."""

    reason: EventReason
    sentence: str


def ignored_requests(snapshot: Snapshot, device: GPUDevice, desired: DesiredPool) -> tuple[IgnoredRequest, ...]:
    """The requests about the card that are not followed."""
    return tuple(_requests(snapshot, device, desired))


def status_message(requests: tuple[IgnoredRequest, ...]) -> str | None:
    """The sentences as `status.message` has them; None for none."""
    return "; ".join(request.sentence for request in requests)[:MAX_MESSAGE] or None


def _requests(snapshot: Snapshot, device: GPUDevice, desired: DesiredPool) -> Iterator[IgnoredRequest]:
    approved = device.metadata.annotations.get(Annotation.ASSIGNMENT)
    if approved and desired.pending is not None and desired.pending.needs_attention:
        advice = _advice(snapshot, device, approved, desired.pending)
        sentence = f"approved for {approved}, but {desired.pending.because}: {advice}"
        yield IgnoredRequest(EventReason.APPROVAL_IGNORED, sentence)
    value = device.metadata.labels.get(Label.IGNORE)
    if value not in _KNOWN_VALUES:
        command = f"kubectl label gpudevice {device.name} {Label.IGNORE}=true --overwrite"
        sentence = f"the label {Label.IGNORE}={value} has no effect, since only `true` has one: `{command}`"
        yield IgnoredRequest(EventReason.LABEL_IGNORED, sentence)


def _advice(snapshot: Snapshot, device: GPUDevice, approved: str, pending: PendingReason) -> str:
    close = get_close_matches(approved, snapshot.pools, n=1) if pending is PendingReason.POOL_NOT_FOUND else []
    if close:
        return f"`kubectl annotate gpudevice {device.name} {Annotation.ASSIGNMENT}={close[0]} --overwrite`"
    if pending is PendingReason.POOL_MISCONFIGURED:
        return f"`kubectl describe gpupool {approved}`"
    if pending is PendingReason.NODE_LIMIT:
        return "raise spec.deviceSelector.maxDevicesPerNode of the pool, or take the approval back: " + _withdraw(
            device
        )
    return f"correct the approval, or take it back: {_withdraw(device)}"


def _withdraw(device: GPUDevice) -> str:
    return f"`kubectl annotate gpudevice {device.name} {Annotation.ASSIGNMENT}-`"
