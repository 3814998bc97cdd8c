"""Schedules as cron has them: five fields, @hourly and the like, or @every with a duration. Pure but for time zones,
which the machine knows."""

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from typing import Final, Self
from zoneinfo import ZoneInfo

import msgspec

from gpu_control_plane.rules.ray.texts import duration

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY: Final = "@every "
_ZONES: Final = ("TZ=", "CRON_TZ=")
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_DAYS: Final = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_NO_NAMES: Final[Mapping[str, int]] = {}
_FIELDS: Final[tuple[tuple[str, int, int, Mapping[str, int]], ...]] = (
    ("minute", 0, 59, _NO_NAMES),
    ("hour", 0, 23, _NO_NAMES),
    ("day", 1, 31, _NO_NAMES),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 6, _DAYS),
)
_SUNDAY: Final = 7
"""Sunday by its other number."""
_LENGTH: Final = 1000
"""Characters. All minutes of an hour, one by one, are 169."""
_DIGITS: Final = 4
_MAX_STEP: Final = 9999
_HORIZON: Final = timedelta(days=5 * 366)
"""After so long a schedule such as 30 February has no next time."""
_MINUTE: Final = timedelta(minutes=1)


class BadSchedule(ValueError):
    """A text that is no schedule; the message says where and what to write."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The times at which something is due."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    """0 is Sunday."""
    any_day: bool = True
    """Whether the field of days has a star; if neither that nor the weekdays' has, one of the two has to fit."""
    any_weekday: bool = True
    every: timedelta | None = None
    """With @every, the time from one to the next."""
    zone: str | None = None
    """The time zone that the text itself names."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """`BadSchedule` for a text that is none."""
        if len(text) > _LENGTH:
            raise BadSchedule(f"it has {len(text)} characters: write {_LENGTH} at most")
        zone, rest = None, text.strip()
        if rest.startswith(_ZONES):
            named, _, rest = rest.partition(" ")
            zone, rest = named.split("=", 1)[1], rest.strip()
            if zone_of(zone) is None:
                raise BadSchedule(f"{zone} is no time zone that is known here: write one such as Europe/Berlin")
        if rest.startswith(_EVERY):
            every = duration(rest.removeprefix(_EVERY).strip())
            if every is None:
                raise BadSchedule(f"{rest!r} has no duration: write @every 90s, @every 10m or @every 1h30m")
            if every < _MINUTE:
                raise BadSchedule(f"{rest!r} is too often: write @every 1m or longer, since a minute has one job")
            return cls(every=every, zone=zone)
        parts = _MACROS.get(rest, rest).split()
        if len(parts) != len(_FIELDS):
            raise BadSchedule(
                f"{text!r} has {len(parts)} fields instead of 5: write minute, hour, day, month and weekday, such as "
                "30 2 * * *, or @daily"
            )
        minutes, hours, days, months, weekdays = (
            _numbers(part, *field) for part, field in zip(parts, _FIELDS, strict=True)
        )
        return cls(
            minutes=minutes,
            hours=hours,
            days=days,
            months=months,
            weekdays=frozenset(day % _SUNDAY for day in weekdays),
            any_day=_has_star(parts[2]),
            any_weekday=_has_star(parts[4]),
            zone=zone,
        )

    def next_after(self, moment: datetime, zone: ZoneInfo | None = None) -> datetime | None:
        """The first time later than `moment`, in UTC; None if there is none for years. `zone` is UTC if absent.

        Hours that a change of clocks leaves out are left out, and those that it repeats count twice, as in CronJobs.
        """
        if self.every is not None:
            return moment.astimezone(UTC).replace(microsecond=0) + self.every
        place = zone_of(self.zone) if self.zone is not None else zone
        now = moment.astimezone(UTC).replace(second=0, microsecond=0) + _MINUTE
        end = now + _HORIZON
        while now < end:
            local = now.astimezone(place or UTC)
            if local.month not in self.months or not self._has_day(local):
                tomorrow = datetime.combine(local.date() + timedelta(days=1), time(), local.tzinfo)
                now = max(tomorrow.astimezone(UTC), now + _MINUTE)
            elif local.hour not in self.hours:
                now += timedelta(hours=1) - timedelta(minutes=local.minute)
            elif local.minute not in self.minutes:
                now += _MINUTE
            else:
                return now
        return None

    def _has_day(self, local: datetime) -> bool:
        day, weekday = local.day in self.days, local.isoweekday() % _SUNDAY in self.weekdays
        return day and weekday if self.any_day or self.any_weekday else day or weekday


def zone_of(name: str) -> ZoneInfo | None:
    """The time zone of this name; None if the machine does not know it."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def _has_star(text: str) -> bool:
    """Whether a field allows everything by a star. With a step it does not: CronJobs read it so, Vixie's cron not."""
    return any(part in {"*", "?", "*/1", "?/1"} for part in text.split(","))


def _numbers(text: str, field: str, least: int, most: int, names: Mapping[str, int]) -> frozenset[int]:
    """What one field allows: a list of numbers, ranges and steps."""
    found: set[int] = set()
    for part in text.split(","):
        span, slash, by = part.partition("/")
        step = _number(by, field, 1, _MAX_STEP, _NO_NAMES) if slash else 1
        if span in {"*", "?"}:
            first, last = least, most
        else:
            begin, dash, end = span.partition("-")
            first = _number(begin, field, least, most, names)
            last = _number(end, field, least, most, names) if dash else (most if slash else first)
        if last < first:
            raise BadSchedule(f"{part!r} in the field {field} ends before it begins: write the smaller one first")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _number(text: str, field: str, least: int, most: int, names: Mapping[str, int]) -> int:
    known = names.get(text.lower())
    if known is not None:
        return known
    limit = _SUNDAY if names is _DAYS else most
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS and least <= int(text) <= limit:
        return int(text)
    example = f", or a name such as {next(iter(names))}" if names else ""
    raise BadSchedule(f"{text!r} is not possible in the field {field}: write {least} to {most}{example}")
