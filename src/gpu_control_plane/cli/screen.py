"""Output for people: a symbol and a colour with meaning, aligned columns, plain lines where there is no terminal.

Rich draws what moves and is imported only on a terminal, when something takes long enough to watch.
"""

import os
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, TextIO

import click

from gpu_control_plane.kube.sentences import one_line
from gpu_control_plane.local.progress import REPEAT_AFTER_SECONDS, SHOW_AFTER_SECONDS, duration

if TYPE_CHECKING:
    from rich.status import Status

OK = ("✓", "green")
BAD = ("✗", "red")
ATTENTION = ("!", "yellow")
IDLE = ("○", "bright_black")

_TITLE_WIDTH = 66
_MAX_WIDTH = 100

type Symbol = tuple[str, str]


class Screen:
    """One stream of output. Also the `Progress` of the local cluster."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        if isinstance(stream, TextIOWrapper):  # where it cannot show a symbol, it shows a question mark
            stream.reconfigure(errors="replace")
        self._terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colour = self._terminal and not os.environ.get("NO_COLOR")

    def line(self, text: str = "") -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def mark(self, symbol: Symbol, text: str) -> None:
        self.line(f"{self.paint(symbol)} {text}")

    def failure(self, text: str) -> None:
        self.mark(BAD, text)

    def note(self, text: str) -> None:
        self.mark(("·", "bright_black"), text)

    def paint(self, symbol: Symbol) -> str:
        return self.style(symbol[0], fg=symbol[1])

    def style(self, text: str, fg: str | None = None, *, bold: bool | None = None) -> str:
        return click.style(text, fg=fg, bold=bold) if self._colour else text

    def table(self, header: Sequence[str], rows: Sequence[tuple[Symbol, Sequence[str]]]) -> None:
        """Rows that each start with a symbol, under a header, in columns as wide as they need to be."""
        widths = [max(map(len, column)) for column in zip(header, *(cells for _, cells in rows), strict=True)]
        self.line(self.style(f"    {_aligned(header, widths)}", fg="bright_black"))
        for symbol, cells in rows:
            self.line(f"  {self.paint(symbol)} {_aligned(cells, widths)}")

    @contextmanager
    def step(self, title: str) -> Iterator["_Step"]:
        """Work that may take a while: progress meanwhile, and a line when it is done."""
        step = _Step(self, title)
        try:
            if self._terminal:
                with self._spinner(title) as status:
                    step.status = status
                    yield step
            else:
                yield step
        except BaseException:
            self.mark(BAD, title)
            raise
        self.mark(OK, f"{title:<{_TITLE_WIDTH}} {self.style(step.elapsed, fg='bright_black')}")

    def _spinner(self, title: str) -> "Status":
        from rich.console import Console  # noqa: PLC0415

        return Console(file=self._stream, highlight=False).status(title, spinner="dots")


class _Step:
    def __init__(self, screen: Screen, title: str) -> None:
        self._screen = screen
        self._title = title
        self._started = time.monotonic()
        self._next = self._started + SHOW_AFTER_SECONDS
        self.status: Status | None = None

    @property
    def elapsed(self) -> str:
        return duration(time.monotonic() - self._started)

    def detail(self, text: str) -> None:
        if self.status is not None:
            from rich.markup import escape  # noqa: PLC0415

            self.status.update(f"{escape(self._title)}  [bright_black]{escape(text)}  {self.elapsed}[/]")
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + REPEAT_AFTER_SECONDS
            self._screen.line(f"  {self._title}: {text} ({self.elapsed})")


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "   ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def wrapped(text: str, first: str = "", width: int = _MAX_WIDTH) -> list[str]:
    """Lines of at most so many columns, the later ones below the text of the first; none for no text. It may be what
    others wrote: what a terminal would carry out is left out."""
    return textwrap.wrap(
        one_line(text),
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
