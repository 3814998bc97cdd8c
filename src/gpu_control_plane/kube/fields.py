"""What an API says of a field beyond its Python type: descriptions, bounds, CEL rules, list keys, meanings of values.

`kube.schema` turns it into the schema of a CRD. Bounds live in the schema only. The API server has checked an object
before we read it, and a reader that checks again would refuse what a newer schema allows.
"""

import enum
import types
from collections.abc import Mapping
from typing import Any, Final, Self

import msgspec

PRESERVE_UNKNOWN: Final[Mapping[str, Any]] = types.MappingProxyType({"x-kubernetes-preserve-unknown-fields": True})
ATOMIC_MAP: Final[Mapping[str, Any]] = types.MappingProxyType({"x-kubernetes-map-type": "atomic"})

API_DEFAULT: Final = "api-default"
"""Marks, in `Meta.extra`, a field whose Python default is the API's."""
REQUIRED: Final = "required"
"""Marks a field that the API requires although readers can do without it."""
NO_EFFECT: Final = "no-effect"
"""Marks a field that is accepted and changes nothing."""
OPEN: Final = "open"
"""Marks a field with an enum whose values are not the only ones that the API server accepts."""


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A CEL rule and the sentence a person reads when an object breaks it."""

    rule: str
    message: str
    message_expression: str | None = None
    reason: str | None = None
    field_path: str | None = None
    optional_old_self: bool | None = None


def about(
    description: str = "",
    *rules: Rule,
    default: bool = False,
    filled_in: object = None,
    required: bool = False,
    effect: bool = True,
    keys: tuple[str, ...] = (),
    unique: bool = False,
    atomic: bool = False,
    closed: bool = True,
    **schema: object,
) -> msgspec.Meta:
    """What the API says of a field beyond its Python type; goes into `Annotated`.

    `default` publishes the Python default as the API's default. `filled_in` is one that the API server fills in and
    readers do not assume: an object without it came by another CRD. `required` lists a field with a default among the
    required ones, `effect=False` says that it changes nothing, `keys` makes a list a map by those fields, `unique`
    makes it a set. `atomic` says that one writer owns an object as a whole: the API server then keeps no account of
    its single fields, which is most of what a write costs it. `closed=False` leaves the values of an enum out of the
    schema: the API server then accepts others, too. Everything else is schema as it is written in a CRD
    (`maxLength=63`, `**PRESERVE_UNKNOWN`).
    """
    if filled_in is not None:
        schema |= {"default": filled_in}
    if not effect:
        description = f"{description} Accepted, without effect.".strip()
    if keys:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    if atomic:
        schema |= ATOMIC_MAP
    if unique:
        schema |= {"x-kubernetes-list-type": "set"}
    extra: dict[str, object] = {rule.rule: rule for rule in rules}
    marks = {API_DEFAULT: default, REQUIRED: required, NO_EFFECT: not effect, OPEN: not closed}
    extra |= {mark: True for mark, set_here in marks.items() if set_here}
    return msgspec.Meta(description=description or None, extra_json_schema=schema or None, extra=extra or None)


class OpenEnum(enum.StrEnum):
    """An enum whose members carry their meaning, and which keeps a value it does not know as it came.

    Readers and writers may differ by a version: an older reader must not fail on a state that came later.
    """

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_ = unknown._value_ = value
        unknown.meaning = ""
        return unknown
