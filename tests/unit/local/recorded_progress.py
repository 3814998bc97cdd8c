"""A `Progress` that records what it is given."""

from collections.abc import Iterator
from contextlib import contextmanager

from gpu_control_plane.local.progress import Step


class RecordedProgress:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.steps: list[str] = []
        self.details: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def detail(self, text: str) -> None:
        self.details.append(text)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        self.steps.append(title)
        yield self
