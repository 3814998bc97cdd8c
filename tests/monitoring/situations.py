"""A situation in which an alert has to fire, or a neighbouring one in which it must not; and what they are made of."""

from collections.abc import Mapping
from typing import Final

import msgspec

type Series = Mapping[str, str]
"""Values of each series, one a minute, as promtool writes them: `0x10` is eleven zeros, `0+5x10` grows by five."""


class Fired(msgspec.Struct, frozen=True):
    """An alert that fires."""

    labels: Mapping[str, str]
    shown: str = ""
    """The value, as the text of the alert shows it."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured, and what must come of it, to the minute."""

    alert: str
    name: str
    series: Series
    fires: tuple[Fired, ...] = ()
    """The labels of the alerts that fire; none where it must not fire."""
    since: int = 0
    """The minute from which its expression is true: it fires when that has lasted as long as the alert says."""
    until: int | None = None
    """A minute at which it fires still; ten minutes later its expression has ended."""
    after: int = 0
    """The minute until which it must not fire, from the beginning or from its end on."""


LEADER: Final = {
    'kube_leading{lease="gpu-control-plane",instance="c1",job="gpu-control-plane-controller"}': "1x300",
    'kube_leading{lease="gpu-control-plane",instance="c2",job="gpu-control-plane-controller"}': "0x300",
}
"""`c1` leads. `c2` has led before, and shows what it saw last."""


def led(metric: str, **labels: str) -> str:
    return f"{metric}{{{_labels({'instance': 'c1', **labels})}}}"


def stale(metric: str, **labels: str) -> str:
    """What the former leader still shows."""
    return f"{metric}{{{_labels({'instance': 'c2', **labels})}}}"


def lasting(alert: str, series: str, *, hold: int, fired: Fired, value: str = "1") -> tuple[Situation, ...]:
    """Fires when it has lasted for so many minutes, and not when it has passed a minute before."""
    return (
        Situation(alert=alert, name="it lasts", series={**LEADER, series: f"{value}x{hold}"}, fires=(fired,)),
        Situation(
            alert=alert,
            name="it passes",
            series={**LEADER, series: f"{value}x{hold - 1} stale"},
            after=2 * hold,
        ),
    )


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())
