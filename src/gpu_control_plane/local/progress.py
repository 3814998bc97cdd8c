"""How long work shows its progress. The command line has an implementation of its own; plain lines serve elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

SHOW_AFTER_SECONDS = 2.0
REPEAT_AFTER_SECONDS = 10.0


class Step(Protocol):
    """One piece of work under way."""

    def detail(self, text: str) -> None:
        """How far it is. Cheap: call it at every change."""


class Progress(Protocol):
    def note(self, text: str) -> None:
        """A fact worth a line of its own."""

    def step(self, title: str) -> AbstractContextManager[Step]:
        """Work that may take a while; leaving the context ends it, with an exception if it failed."""


class Quiet:
    """Shows nothing."""

    def note(self, text: str) -> None:
        pass

    def detail(self, text: str) -> None:
        pass

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:  # noqa: ARG002
        yield self


class Lines:
    """Plain lines for logs and pipes: nothing for quick steps, a line now and then for slow ones."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock

    def note(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        step = _LineStep(title, self.note, self._clock)
        yield step
        step.finish()


class _LineStep:
    def __init__(self, title: str, write: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._title = title
        self._write = write
        self._clock = clock
        self._started = clock()
        self._next = self._started + SHOW_AFTER_SECONDS

    def detail(self, text: str) -> None:
        now = self._clock()
        if now >= self._next:
            self._next = now + REPEAT_AFTER_SECONDS
            self._write(f"{self._title}: {text} ({duration(now - self._started)})")

    def finish(self) -> None:
        took = self._clock() - self._started
        if took >= SHOW_AFTER_SECONDS:
            self._write(f"{self._title}: done ({duration(took)})")


def duration(seconds: float) -> str:
    """A duration in at most two units: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`."""
    if seconds < 10:  # noqa: PLR2004
        return f"{max(seconds, 0):.1f} s"
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    parts: list[str] = []
    rest = round(seconds)
    for unit, size in units:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 ")) or "0 s"


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
