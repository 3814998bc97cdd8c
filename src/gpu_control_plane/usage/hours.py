"""GPU-hours added up. Pure.

An hour of a card that pods share, or of a MIG instance, is a part of an hour: pods that share a card have equal parts
of it, and an instance has its compute slices of seven.
"""

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final

import msgspec

from gpu_control_plane.kube.fields import OpenEnum

UNKNOWN: Final = "unknown"
_SLICES: Final = 7
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}
_PERIOD: Final = re.compile(r"(?P<number>\d{1,4})(?P<unit>[hdw])", re.ASCII)
_PROFILE: Final = re.compile(r"(?P<slices>\d+)g\.", re.ASCII)


class By(OpenEnum):
    """By what hours are added up."""

    NAMESPACE = "namespace", "by the namespace of the pods."
    POOL = "pool", "by the pool that the card is in now."
    OWNER = "owner", "by what made the pods: a Job, a ReplicaSet, a StatefulSet."
    MODEL = "model", "by the model of the cards."
    NODE = "node", "by node."


class Hours(msgspec.Struct, frozen=True, kw_only=True):
    """Hours of one group, or of a part of one. What was not measured is None, never 0."""

    key: str
    held: float
    """GPU-hours that pods held cards."""
    used: float | None = None
    """Those hours times how busy the cards were."""
    idle: float | None = None
    """Hours held in which the card was busy less than 5 % of the time."""
    measured: float = 0.0
    """Hours held for which it is known how busy the card was."""


class UsageRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A line of the answer."""

    key: str
    held: float
    used: float | None
    idle: float | None
    waste: float | None
    """Held and not used."""
    share: float | None
    """Of the measured hours, the part that was used, in percent."""
    unmeasured: float
    """Hours held for which nobody knows how busy the card was."""


def add_up(parts: Iterable[Hours]) -> list[UsageRow]:
    """One row for each key, the most held first."""
    groups: dict[str, list[Hours]] = {}
    for part in parts:
        groups.setdefault(part.key or UNKNOWN, []).append(part)
    rows = [_row(key, held) for key, held in groups.items()]
    return sorted(rows, key=lambda row: (-row.held, row.key))


def under_other_names(rows: Iterable[UsageRow], name: Callable[[str], str]) -> list[UsageRow]:
    """The rows as `name` calls them; those that it calls the same are added up."""
    return add_up(
        Hours(key=name(row.key), held=row.held, used=row.used, idle=row.idle, measured=row.held - row.unmeasured)
        for row in rows
    )


def read_period(text: str) -> timedelta | None:
    """A length of time such as 12h, 7d or 4w; None for anything else, and for none at all."""
    found = _PERIOD.fullmatch(text)
    if found is None:
        return None
    return timedelta(**{_UNITS[found["unit"]]: int(found["number"])}) or None


def _row(key: str, parts: list[Hours]) -> UsageRow:
    held, measured = sum(part.held for part in parts), sum(part.measured for part in parts)
    used = _sum(part.used for part in parts)
    return UsageRow(
        key=key,
        held=round(held, 4),
        used=_rounded(used),
        idle=_rounded(_sum(part.idle for part in parts)),
        waste=_rounded(max(measured - used, 0.0) if used is not None else None),
        share=round(100 * min(used / measured, 1.0), 1) if used is not None and measured > 0 else None,
        unmeasured=round(max(held - measured, 0.0), 4),
    )


def part_of_card(profile: str) -> float:
    """How much of a card a MIG instance of this profile is; all of it without one."""
    found = _PROFILE.match(profile)
    return min(int(found["slices"]), _SLICES) / _SLICES if found is not None else 1.0


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
