"""GPUApprovals: what was decided about cards before they were there, and what becomes of it when they are. Pure.

The UUID alone says which card is meant. What a person, or a pool, has decided about the card since then is newer and
stands.
"""

from collections.abc import Mapping
from typing import Final

from gpu_control_plane.api.gpuapproval import GPUApproval
from gpu_control_plane.api.gpudevice import GPUDevice, Hardware
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.inventory import events
from gpu_control_plane.inventory.plan import CarryOver, DeleteApproval, WriteApprovalMessage
from gpu_control_plane.inventory.report import Report
from gpu_control_plane.inventory.snapshot import Snapshot

_BEFOREHAND: Final = "approved beforehand, by a GPUApproval"


def approval_for(snapshot: Snapshot, card: Hardware) -> GPUApproval | None:
    """The GPUApproval that means this card."""
    if card.uuid is None:
        return None
    found = (each for each in snapshot.approvals if each.spec.uuid == card.uuid and not each.deleting)
    return min(found, key=lambda each: each.name, default=None)


def followed(approval: GPUApproval, name: str, device: GPUDevice | None, *, replaced: bool) -> CarryOver | None:
    """What to write on the card; None if it is so already, or something else was decided about it. What a card that was
    `replaced` had been approved for says nothing about this one."""
    if device is not None and (agrees(approval, device) or _decided(device, replaced=replaced)):
        return None
    wanted = _annotations(approval)
    here = device.metadata.annotations if device is not None else {}
    annotations = {key: value for key, value in wanted.items() if here.get(key) != value}
    return CarryOver(name, annotations, {Label.IGNORE.value: "true"} if approval.spec.ignore else {})


def agrees(approval: GPUApproval, device: GPUDevice) -> bool:
    """Whether the card is as the GPUApproval wants it."""
    annotations, spec = device.metadata.annotations, approval.spec
    held = Annotation.HOLD in annotations
    return (annotations.get(Annotation.ASSIGNMENT), held, device.ignored) == (
        spec.pool,
        spec.hold is not None,
        spec.ignore,
    )


def settled(approval: GPUApproval, device: GPUDevice | None, carried: CarryOver | None) -> DeleteApproval:
    """The end of a GPUApproval. One that was overruled by another decision says so."""
    if carried is not None or device is None or agrees(approval, device):
        return DeleteApproval(approval)
    return DeleteApproval(approval, device, events.approval_overruled(approval, device))


def messages(snapshot: Snapshot, report: Report) -> tuple[WriteApprovalMessage, ...]:
    """Why GPUApprovals of the node wait, where that differs from what they say."""
    there = {card.pci.address: card for card in report.cards}
    uuids = {card.uuid for card in report.cards}
    waiting = (each for each in snapshot.approvals if each.spec.uuid not in uuids and not each.deleting)
    told = ((each, _message(each, there, complete=report.complete)) for each in waiting)
    return tuple(WriteApprovalMessage(each.name, text) for each, text in told if text != each.status.message)


def _message(approval: GPUApproval, there: Mapping[str, Hardware], *, complete: bool) -> str | None:
    spec = approval.spec
    card = there.get(spec.pci_address)
    if card is None:
        return f"{spec.node_name} has no card {spec.uuid}." if complete else None
    if card.uuid is None:
        return f"The driver of {spec.node_name} has yet to tell which card is at {spec.pci_address}."
    return (
        f"Another card is at {spec.pci_address} of {spec.node_name}: {card.uuid}. It is not approved by this: if it"
        f" should be, use `kubectl gpu approve`; then `kubectl delete gpuapproval {approval.name}`."
    )


def _decided(device: GPUDevice, *, replaced: bool) -> bool:
    annotations = device.metadata.annotations
    approved = Annotation.ASSIGNMENT in annotations and not replaced
    return approved or Annotation.HOLD in annotations or device.ignored


def _annotations(approval: GPUApproval) -> dict[str, str | None]:
    spec = approval.spec
    return {
        Annotation.ASSIGNMENT.value: spec.pool,
        Annotation.APPROVED_BY.value: None,
        Annotation.REASON.value: spec.reason or (_BEFOREHAND if spec.pool is not None else None),
        Annotation.HOLD.value: spec.hold,
    }
