"""What has waited for long is told of once, each time it begins to wait."""

from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from gpu_control_plane.kube import EventRecorder
from gpu_control_plane.ray.waiting.controller import Overdue, tell_overdue
from gpu_control_plane.ray.waiting.events import WaitingEvent
from unit.ray.waiting.builders import NOON, cluster


class Recorder:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def warning(self, _about: Any, reason: WaitingEvent, note: str) -> None:
        self.notes.append(f"{reason}: {note}")


def waiting(what: str, since: datetime) -> Overdue:
    return Overdue(what, since, WaitingEvent.WORKERS, f"{what} waits")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def test_it_is_told_when_it_is_due_and_not_again(recorder: Recorder) -> None:
    found, told = [waiting("a", NOON), waiting("b", NOON + timedelta(minutes=5))], dict[str, datetime]()
    for minute in range(4):
        due = NOON - timedelta(minutes=1) + timedelta(minutes=minute)
        told = tell_overdue(cast("EventRecorder", recorder), cluster(), found, told, due)
    assert recorder.notes == ["RayWorkersWait: a waits"]
    assert told == {"a": NOON}


def test_what_waits_anew_is_told_anew(recorder: Recorder) -> None:
    told = tell_overdue(cast("EventRecorder", recorder), cluster(), [waiting("a", NOON)], {}, NOON)
    told = tell_overdue(cast("EventRecorder", recorder), cluster(), [], told, NOON)
    later = NOON + timedelta(hours=1)
    tell_overdue(cast("EventRecorder", recorder), cluster(), [waiting("a", later)], told, later)
    assert len(recorder.notes) == 2
