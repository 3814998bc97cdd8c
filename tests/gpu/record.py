"""What was compared and measured on a card: shown at the end of the run and kept for `docs/hardware.md`."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec


class Compared(msgspec.Struct, frozen=True):
    """One fact from two sources."""

    what: str
    ours: str
    theirs: str


class Measured(msgspec.Struct, frozen=True):
    what: str
    value: float
    unit: str


class Record(msgspec.Struct):
    """Everything of one run, in the order in which it happened."""

    compared: list[Compared] = []
    measured: list[Measured] = []

    @property
    def empty(self) -> bool:
        return not (self.compared or self.measured)

    def compare(self, what: str, ours: object, theirs: object) -> None:
        """Note both sides. Whether they agree is for the test to say."""
        self.compared.append(Compared(what, str(ours), str(theirs)))

    def measure(self, what: str, value: float, unit: str = "s") -> None:
        self.measured.append(Measured(what, round(value, 6), unit))

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Note how long this takes, if it succeeds."""
        began = time.monotonic()
        yield
        self.measure(what, time.monotonic() - began)

    def text(self) -> str:
        names = [each.what for each in self.compared] + [each.what for each in self.measured]
        wide = max((len(name) for name in names), default=0)
        middle = max((len(each.ours) for each in self.compared), default=0)
        lines = [f"{each.what:{wide}}  {each.ours:{middle}}  {each.theirs}" for each in self.compared]
        lines += [f"{each.what:{wide}}  {each.value:g} {each.unit}" for each in self.measured]
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
