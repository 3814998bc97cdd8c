"""Which fields of an existing object a write would change. Pure, for people to read.

The API server fills in defaults, so a field that only the existing object has does not count, except for items of a
list whose items have names: an environment variable or a volume that is not wanted any more would be removed.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_NAMES: Final = ("name", "mountPath", "containerPort", "key")
"""The fields by which an item of a list is identified, the first that all items have."""


def differences(desired: Any, existing: Any, path: str = "") -> Iterator[str]:
    """Paths of what would change, such as `spec.template.spec.containers[driver].image`."""
    if isinstance(desired, Mapping):
        held = existing if isinstance(existing, Mapping) else {}
        for name, value in desired.items():
            yield from differences(value, held.get(name), f"{path}.{name}" if path else str(name))
    elif isinstance(desired, list):
        yield from _lists(desired, existing if isinstance(existing, list) else [], path)
    elif not _alike(desired, existing):
        yield path


def _lists(desired: list[Any], existing: list[Any], path: str) -> Iterator[str]:
    key = next(
        (name for name in _NAMES if desired and all(isinstance(one, Mapping) and name in one for one in desired)), None
    )
    if key is None:
        if len(desired) != len(existing):
            yield path
            return
        for index, (want, held) in enumerate(zip(desired, existing, strict=True)):
            yield from differences(want, held, f"{path}[{index}]")
        return
    held_by_name = {one.get(key): one for one in existing if isinstance(one, Mapping)}
    for want in desired:
        yield from differences(want, held_by_name.pop(want[key], None), f"{path}[{want[key]}]")
    yield from (f"{path}[{name}]" for name in held_by_name)


def _alike(desired: object, existing: object) -> bool:
    """Whether two values are equal; the API server omits empty ones."""
    if existing is None and desired in (None, "", 0, False):
        return True
    return desired == existing
