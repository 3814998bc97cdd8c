"""Values in nested tables, by the keys that lead to them."""

from collections.abc import Mapping
from typing import Any

type Keys = tuple[str, ...]
type PlainValue = str | int | float | bool


def find(data: Mapping[str, Any], keys: Keys) -> Any:
    """The value at these keys; None if there is none."""
    here: Any = data
    for key in keys:
        if not isinstance(here, Mapping) or key not in here:
            return None
        here = here[key]
    return here


def store(data: dict[str, Any], keys: Keys, value: object) -> None:
    """Set the value at these keys, creating the tables around it; raises ValueError if a key holds no table."""
    here = data
    for key in keys[:-1]:
        inner = here.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ValueError(f"{key} is no table.")  # noqa: TRY004 - a fault of the content, not of the caller
        here = inner
    here[keys[-1]] = value


def delete(data: dict[str, Any], keys: Keys) -> None:
    """Remove the value at these keys."""
    del find(data, keys[:-1])[keys[-1]]


def merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Merge one document into another: tables are merged, everything else is replaced."""
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value
