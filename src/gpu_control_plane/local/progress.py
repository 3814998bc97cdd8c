"""How long work tells people what it is doing. The command line brings its own; plain lines serve everywhere else."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

WORTH_SHOWING = 2.0
_EVERY = 10.0


class Step(Protocol):
    """One piece of work under way."""

    def detail(self, text: str) -> None:
        """How far it is. Cheap: call it as often as there is news."""


class Progress(Protocol):
    def note(self, text: str) -> None:
        """A fact worth a line of its own."""

    def step(self, title: str) -> AbstractContextManager[Step]:
        """Work that may take a while; leaving the context ends it, with an exception if it failed."""


class Quiet:
    """Says nothing, for callers that have no screen."""

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
        self._next = self._started + WORTH_SHOWING

    def detail(self, text: str) -> None:
        now = self._clock()
        if now >= self._next:
            self._next = now + _EVERY
            self._write(f"{self._title}: {text} ({seconds(now - self._started)})")

    def finish(self) -> None:
        took = self._clock() - self._started
        if took >= WORTH_SHOWING:
            self._write(f"{self._title}: done ({seconds(took)})")


def seconds(duration: float) -> str:
    """A duration as people say it: `0.4 s`, `12 s`, `3 min 5 s`."""
    if duration < 10:  # noqa: PLR2004
        return f"{duration:.1f} s"
    minutes, rest = divmod(round(duration), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
