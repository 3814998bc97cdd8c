"""Waiting times that people may set: how they are declared, written and read.

A controller has one struct of settings. Each field of it that is a `timedelta` and carries a sentence, as in
`Annotated[timedelta, about("How long …")]`, is a waiting time: it can be set by the option `--timing` of the process
and by the chart value of the same name, and docs/settings.md lists it. The code has the only default.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Annotated, Final, get_args, get_origin, get_type_hints

import msgspec

from gpu_control_plane.api.shapes import wire_name

DURATION: Final = r"^([0-9]{1,5}[smh])+$"
"""How a duration is written, such as 90s, 5m or 1h30m; values.schema.json has the same."""

_UNITS: Final = {"h": 3600, "m": 60, "s": 1}


class UnknownTiming(ValueError):
    """A waiting time that does not exist, or a value that is no duration; the message says what there is."""


class WaitingTime(msgspec.Struct, frozen=True):
    """One waiting time."""

    field: str
    name: str
    """As the option and the chart write it: `node_grace_period` is `nodeGracePeriod`."""
    default: timedelta
    meaning: str


def waiting_times(settings: type[msgspec.Struct]) -> tuple[WaitingTime, ...]:
    """The waiting times among the fields of a struct of settings."""
    hints = get_type_hints(settings, include_extras=True)
    found = []
    for field in msgspec.structs.fields(settings):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated or get_args(hint)[0] is not timedelta:
            continue
        meaning = next((meta.description for meta in get_args(hint) if isinstance(meta, msgspec.Meta)), None)
        found.append(WaitingTime(field.name, wire_name(field.name), field.default, meaning or ""))
    return tuple(found)


def with_timings[T: msgspec.Struct](settings: T, values: Mapping[str, str]) -> T:
    """The settings with waiting times as they were written, by name."""
    known = {one.name: one.field for one in waiting_times(type(settings))}
    if unknown := sorted(values.keys() - known.keys()):
        raise UnknownTiming(f"there is no waiting time {unknown[0]}: there are {', '.join(sorted(known))}")
    changes = {known[name]: parse_duration(text) for name, text in values.items()}
    return msgspec.structs.replace(settings, **changes)


def parse_timings(options: Iterable[str], groups: Iterable[str]) -> dict[str, dict[str, str]]:
    """Options such as `inventory.nodeGracePeriod=5m`, by group and name."""
    found: dict[str, dict[str, str]] = {group: {} for group in groups}
    for option in options:
        path, separator, value = option.partition("=")
        group, dot, name = path.partition(".")
        if not separator or not dot or not name:
            raise UnknownTiming(f"write a waiting time as inventory.nodeGracePeriod=5m, not as {option}")
        if group not in found:
            raise UnknownTiming(f"there is no group {group} of waiting times: there are {', '.join(sorted(found))}")
        found[group][name] = value
    return found


def parse_duration(text: str) -> timedelta:
    if re.fullmatch(DURATION, text) is None:
        raise UnknownTiming(f"{text!r} is no duration: write 90s, 5m or 1h30m")
    parts = re.findall(r"(\d+)([smh])", text)
    return timedelta(seconds=sum(int(number) * _UNITS[unit] for number, unit in parts))


def format_duration(time: timedelta) -> str:
    """A duration of whole seconds as `parse_duration` reads it."""
    left, text = int(time.total_seconds()), ""
    for unit, seconds in _UNITS.items():
        count, left = divmod(left, seconds)
        text += f"{count}{unit}" if count else ""
    return text or "0s"
