"""The difference of two JSON documents as an RFC 6902 patch that touches only what differs.

Webhooks answer with such patches: the smaller they are, the fewer fields two webhooks on one object fight over.
"""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

type Json = dict[str, Json] | list[Json] | str | int | float | bool | None

_LARGEST_TABLE = 40_000
"""Beyond this many pairs of elements two lists are compared place by place, so that time stays bounded."""


class Op(StrEnum):
    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a patch; `value` has no meaning for `remove`."""

    op: Op
    path: str
    value: Json | msgspec.UnsetType = msgspec.UNSET


def diff(before: Json, after: Json) -> tuple[Operation, ...]:
    """A patch that turns `before` into `after`; empty when they are the same.

    Objects are compared by key; of lists the fewest elements are added, removed or changed. `1`, `1.0` and `true` are
    three different values, as they are to the API server.
    """
    return tuple(_diff("", before, after))


def same(left: Json, right: Json) -> bool:
    """Equality as JSON knows it, where `True` is not `1`."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def _diff(path: str, before: Json, after: Json) -> Iterator[Operation]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _diff_objects(path, before, after)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _diff_lists(path, before, after)
    elif not same(before, after):
        yield Operation(Op.REPLACE, path, after)


def _diff_objects(path: str, before: dict[str, Json], after: dict[str, Json]) -> Iterator[Operation]:
    for key in before:
        if key not in after:
            yield Operation(Op.REMOVE, f"{path}/{_escaped(key)}")
    for key, value in after.items():
        if key in before:
            yield from _diff(f"{path}/{_escaped(key)}", before[key], value)
        else:
            yield Operation(Op.ADD, f"{path}/{_escaped(key)}", value)


def _diff_lists(path: str, before: list[Json], after: list[Json]) -> Iterator[Operation]:
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    small = len(old) * len(new) <= _LARGEST_TABLE
    steps = _fewest_steps(old, new) if small else _place_by_place(old, new)
    place = start
    for left, right in steps:
        if isinstance(right, _Nothing):
            yield Operation(Op.REMOVE, f"{path}/{place}")
            continue
        if isinstance(left, _Nothing):
            yield Operation(Op.ADD, f"{path}/{place}", right)
        else:
            yield from _diff(f"{path}/{place}", left, right)
        place += 1


class _Nothing:
    """The partner of an element that is added or removed."""


_NOTHING = _Nothing()

type _Steps = list[tuple[Json | _Nothing, Json | _Nothing]]


def _fewest_steps(old: list[Json], new: list[Json]) -> _Steps:
    """Pair elements so that the least is changed: the classic edit distance, cheaper where elements are alike."""
    changes = [[_change_cost(left, right) for right in new] for left in old]
    costs = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for row in range(len(old), -1, -1):
        for column in range(len(new), -1, -1):
            if row == len(old) or column == len(new):
                costs[row][column] = float(len(old) - row + len(new) - column)
            else:
                costs[row][column] = min(
                    changes[row][column] + costs[row + 1][column + 1],
                    1.0 + costs[row + 1][column],
                    1.0 + costs[row][column + 1],
                )
    steps: _Steps = []
    row = column = 0
    while row < len(old) and column < len(new):
        if costs[row][column] == changes[row][column] + costs[row + 1][column + 1]:
            steps.append((old[row], new[column]))
            row, column = row + 1, column + 1
        elif costs[row][column] == 1.0 + costs[row + 1][column]:
            steps.append((old[row], _NOTHING))
            row += 1
        else:
            steps.append((_NOTHING, new[column]))
            column += 1
    steps += [(left, _NOTHING) for left in old[row:]]
    steps += [(_NOTHING, right) for right in new[column:]]
    return steps


def _place_by_place(old: list[Json], new: list[Json]) -> _Steps:
    steps: _Steps = list(zip(old, new, strict=False))
    steps += [(left, _NOTHING) for left in old[len(new) :]]
    steps += [(_NOTHING, right) for right in new[len(old) :]]
    return steps


def _change_cost(left: Json, right: Json) -> float:
    """Nothing for the same value, at most 1 for another one, less for objects with fields in common."""
    if isinstance(left, dict) and isinstance(right, dict):
        fields = left.keys() | right.keys()
        alike = sum(1 for key in left.keys() & right.keys() if same(left[key], right[key]))
        if alike == len(fields):
            return 0.0
        return 1.0 - alike / (2 * len(fields))
    return 0.0 if same(left, right) else 1.0


def _common(left: list[Json], right: list[Json]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if not same(one, other):
            break
        count += 1
    return count


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
