"""Plots as SVG that the server draws: no script, no style attribute, nothing from outside."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.console.capacity_history import CapacitySample

WIDTH: Final = 760
HEIGHT: Final = 200
_LEFT: Final = 40
_RIGHT: Final = 8
_TOP: Final = 10
_BOTTOM: Final = 24
_STEPS: Final = (1, 2, 5)
_MOST_LINES: Final = 5


class Tick(msgspec.Struct, frozen=True):
    """A mark on an axis."""

    place: float
    text: str


class CapacityPlot(msgspec.Struct, frozen=True, kw_only=True):
    """The coordinates of a plot, for a template."""

    used: str
    used_area: str
    idle: str
    """Empty where it was not measured."""
    idle_area: str
    total: str
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    bottom: int = HEIGHT - _BOTTOM


def capacity_plot(samples: Sequence[CapacitySample]) -> CapacityPlot | None:
    """None for less than two samples: there is nothing to see."""
    if len(samples) < 2:  # noqa: PLR2004
        return None
    first, last = samples[0].at, samples[-1].at
    top = max(1, *(sample.total for sample in samples))
    span = max((last - first).total_seconds(), 1.0)
    floor = HEIGHT - _BOTTOM

    def x(at: datetime) -> float:
        return round(_LEFT + (at - first).total_seconds() / span * (WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(floor - value / top * (floor - _TOP), 1)

    def line(values: Sequence[int]) -> str:
        """Steps: a value holds until the next sample."""
        points = [f"M{x(first)},{y(values[0])}"]
        for sample, value in zip(samples[1:], values[1:], strict=True):
            points.append(f"H{x(sample.at)}V{y(value)}")
        return "".join(points)

    def area(values: Sequence[int]) -> str:
        return f"{line(values)}V{floor}H{x(first)}Z"

    used = [sample.used for sample in samples]
    measured = all(sample.held_idle is not None for sample in samples)
    idle = [sample.held_idle or 0 for sample in samples]
    moments = [samples[len(samples) * part // 4] for part in range(4)] + [samples[-1]]
    return CapacityPlot(
        used=line(used),
        used_area=area(used),
        idle=line(idle) if measured else "",
        idle_area=area(idle) if measured else "",
        total=line([sample.total for sample in samples]),
        across=tuple(Tick(x(sample.at), f"{sample.at:%H:%M}") for sample in moments),
        up=tuple(Tick(y(value), str(value)) for value in _round_values(top)),
    )


def _round_values(top: int) -> list[int]:
    """Values for the lines across, up to `top`: round, and only a few."""
    size = 1
    while True:
        for step in _STEPS:
            if top / (step * size) <= _MOST_LINES:
                return list(range(0, top + 1, step * size))
        size *= 10
