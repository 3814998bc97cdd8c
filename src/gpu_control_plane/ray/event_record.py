"""An Event that a decision asks for. Plain data, so that decisions can be compared and tests need no recorder."""

from enum import StrEnum

import msgspec

from gpu_control_plane.kube.events import EventRecorder
from gpu_control_plane.kube.objects import Object


class EventRecord(msgspec.Struct, frozen=True):
    """An Event, recorded once what was decided has been done."""

    reason: StrEnum
    note: str
    action: str = "Reconcile"
    warning: bool = False


def emit(recorder: EventRecorder, about: Object, event: EventRecord) -> None:
    """Record the Event of an object."""
    record = recorder.warning if event.warning else recorder.normal
    record(about, event.reason, event.note, action=event.action)
