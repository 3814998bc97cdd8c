"""Plots as SVG that the server draws: no script, no style attribute, nothing from outside."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gpu_control_plane.console.capacity_history import CapacitySample
from gpu_control_plane.views.cards import Readings

_LEFT: Final = 40
_RIGHT: Final = 8
_TOP: Final = 10
_BOTTOM: Final = 24
_STEPS: Final = (1, 2, 5)
_MOST_LINES: Final = 5
_SPAN_WIDTH: Final = 190
"""How far moments on the lower axis are apart."""
_MIB_IN_GIB: Final = 1024

type Values = Sequence[float | None]
"""A number for each moment; None where it was not measured."""


class Size(msgspec.Struct, frozen=True):
    width: int
    height: int


_WHOLE: Final = Size(760, 200)
_HALF: Final = Size(380, 130)


class Tick(msgspec.Struct, frozen=True):
    """A mark on an axis."""

    place: float
    text: str


class Line(msgspec.Struct, frozen=True):
    """A line of a plot, and what is below it. They look as the classes `line-<name>` and `area-<name>` do."""

    name: str
    path: str
    area: str


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """The coordinates of a plot, for a template."""

    size: Size
    lines: tuple[Line, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    left: int = _LEFT
    right: int
    bottom: int


class CardPlot(msgspec.Struct, frozen=True, kw_only=True):
    """One of the things that a card shows, over time."""

    name: str
    """Its texts are `plot.<name>` and `unit.<name>`."""
    plot: Plot
    least: int
    most: int


def capacity_plot(samples: Sequence[CapacitySample]) -> Plot | None:
    """The units of a pool. None for less than two samples: there is nothing to see."""
    if len(samples) < 2:  # noqa: PLR2004
        return None
    lines: dict[str, Values] = {"used": [sample.used for sample in samples]}
    if all(sample.held_idle is not None for sample in samples):
        lines["idle"] = [sample.held_idle for sample in samples]
    lines["total"] = [sample.total for sample in samples]
    return _draw(_WHOLE, [sample.at for sample in samples], lines)


def card_plots(readings: Sequence[Readings], memory_mib: int | None) -> list[CardPlot]:
    """What the card has measured; nothing for less than two readings."""
    if len(readings) < 2:  # noqa: PLR2004
        return []
    moments = [read.at for read in readings]
    memory = [None if read.memory_used_mib is None else read.memory_used_mib / _MIB_IN_GIB for read in readings]
    found = [
        _card_plot("busy", moments, [read.utilisation for read in readings], full=100),
        _card_plot("memory", moments, memory, full=(memory_mib or 0) / _MIB_IN_GIB),
        _card_plot("temperature", moments, [read.temperature for read in readings], full=100),
        _card_plot("power", moments, [read.power for read in readings], full=0),
    ]
    return [plot for plot in found if plot is not None]


def _card_plot(name: str, moments: Sequence[datetime], values: Values, *, full: float) -> CardPlot | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return CardPlot(
        name=name,
        plot=_draw(_HALF, moments, {name: values}, full=full),
        least=round(min(known)),
        most=round(max(known)),
    )


def _draw(size: Size, moments: Sequence[datetime], lines: Mapping[str, Values], *, full: float = 0) -> Plot:
    """Steps: a value holds until the next moment. The plot is as high as the largest value, and at least `full`."""
    first = moments[0]
    span = max((moments[-1] - first).total_seconds(), 1.0)
    known = [value for values in lines.values() for value in values if value is not None]
    top = max(1, math.ceil(max(full, *known)))
    floor = size.height - _BOTTOM

    def x(at: datetime) -> float:
        return round(_LEFT + (at - first).total_seconds() / span * (size.width - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(floor - value / top * (floor - _TOP), 1)

    def line(name: str, values: Values) -> Line:
        path, area = "", ""
        for start, run in _runs(values):
            part = f"M{x(moments[start])},{y(run[0])}"
            part += "".join(f"H{x(moments[start + place])}V{y(value)}" for place, value in enumerate(run) if place)
            if start + len(run) < len(moments):
                part += f"H{x(moments[start + len(run)])}"
            path += part
            area += f"{part}V{floor}H{x(moments[start])}Z"
        return Line(name, path, area)

    spans = size.width // _SPAN_WIDTH
    shown = [first + timedelta(seconds=span * part / spans) for part in range(spans + 1)]
    return Plot(
        size=size,
        lines=tuple(line(name, values) for name, values in lines.items()),
        across=tuple(Tick(x(at), f"{at:%H:%M}") for at in shown),
        up=tuple(Tick(y(value), str(value)) for value in _round_values(top)),
        right=size.width - _RIGHT,
        bottom=floor,
    )


def _runs(values: Values) -> Iterator[tuple[int, list[float]]]:
    """Where values that follow each other begin, and they; between them nothing was measured."""
    run: list[float] = []
    for place, value in enumerate([*values, None]):
        if value is not None:
            run.append(value)
        elif run:
            yield place - len(run), run
            run = []


def _round_values(top: int) -> list[int]:
    """Values for the lines across, up to `top`: round, and only a few."""
    size = 1
    while True:
        for step in _STEPS:
            if top / (step * size) <= _MOST_LINES:
                return list(range(0, top + 1, step * size))
        size *= 10
