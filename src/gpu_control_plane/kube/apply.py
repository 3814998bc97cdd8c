"""Server-side apply of exactly the fields a component owns, and only when they differ from what is there.

A component describes the fields it owns with a struct of its own (an apply configuration) whose optional fields are
`UNSET` by default. The read types cannot serve: leaving out a field that equals its default would give up owning it.
"""

import functools
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET

from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.objects import FieldManager, Object


class Applier:
    """Server-side apply for one component: its client, and the field manager under which it owns fields."""

    def __init__(self, client: Client, manager: str) -> None:
        self._client = client
        self._manager = FieldManager(manager)

    async def apply[T: Object](
        self,
        kind: type[T],
        name: str,
        desired: msgspec.Struct,
        observed: T | None,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        guarded: bool = False,
    ) -> T:
        """Make the object's fields be as `desired` says; no request where `observed` shows that they are.

        With `guarded` the write fails with `Conflict` if the object has changed since `observed` was read.
        """
        if observed is not None and not differs(desired, observed):
            return observed
        version = observed.metadata.resource_version if guarded and observed is not None else None
        return await self._client.apply(
            kind,
            name,
            desired,
            manager=self._manager,
            namespace=namespace,
            subresource=subresource,
            resource_version=version,
        )


def differs(desired: object, observed: object) -> bool:
    """Whether writing `desired` would change anything in `observed`.

    A struct is compared field by field, where `UNSET` means that the field should not be there. Maps and lists whose
    elements have a `merge_key` are shared with other writers: only the desired entries are looked at. All other
    values belong to one writer and are compared whole.
    """
    match desired:
        case msgspec.Struct():
            return _struct_differs(desired, observed)
        case Mapping():
            held = observed if isinstance(observed, Mapping) else {}
            return any(key not in held or differs(value, held[key]) for key, value in desired.items())
        case str() | bytes():
            return desired != observed
        case Sequence():
            return _list_differs(desired, observed if isinstance(observed, Sequence) else ())
        case _:
            return desired != observed


def _struct_differs(desired: msgspec.Struct, observed: object) -> bool:
    if not isinstance(observed, msgspec.Struct):
        return True
    defaults = _fields(type(observed))
    for name in desired.__struct_fields__:
        value, held = getattr(desired, name), getattr(observed, name)
        if value is UNSET:
            if not _absent(held, defaults[name]):
                return True
        elif differs(value, held):
            return True
    return False


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a struct by name. Finding them evaluates every annotation, and every write is compared."""
    return {field.name: field for field in msgspec.structs.fields(kind)}


def _list_differs(desired: Sequence[object], observed: Sequence[object]) -> bool:
    merge_key = getattr(desired[0], "merge_key", None) if desired else None
    if merge_key is None:
        return len(desired) != len(observed) or any(
            differs(want, held) for want, held in zip(desired, observed, strict=True)
        )
    by_key = {getattr(held, merge_key): held for held in observed}
    return any(differs(want, by_key.get(getattr(want, merge_key))) for want in desired)


def _absent(value: object, field: msgspec.structs.FieldInfo) -> bool:
    """Whether a decoded value is what decoding gives when the field is not there."""
    if value is None or value is UNSET:
        return True
    if field.default is not msgspec.NODEFAULT:
        return bool(value == field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return bool(value == field.default_factory())
    return False
