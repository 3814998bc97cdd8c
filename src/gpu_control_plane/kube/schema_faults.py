"""What is wrong with a value by a structural schema, so that a file can be refused before an API server sees it.

Rules in CEL are the API server's own and are not looked at.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

KEYWORDS: Final = frozenset(
    {
        *("type", "x-kubernetes-int-or-string", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum"),
        *("items", "minItems", "maxItems", "maxProperties", "required", "properties", "additionalProperties"),
        "x-kubernetes-preserve-unknown-fields",
    }
)
"""What decides here. Whoever has a schema that says more has to say it in another way."""

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (Mapping,),
    "array": (list, tuple),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_SIZES: Final = (
    ((str,), "Length", "characters"),
    ((list, tuple), "Items", "items"),
    ((Mapping,), "Properties", "fields"),
)

type Schema = Mapping[str, Any]


class Fault(NamedTuple):
    """A place in the value, and a sentence about it."""

    path: str
    why: str


def faults(value: object, schema: Schema, path: str = "") -> Iterator[Fault]:
    """Everything that is wrong, in the order of the value."""
    if not _fits(value, schema):
        yield Fault(path, f"{_article(schema)} is needed here, and this is {_shown(value)}.")
        return
    yield from (Fault(path, why) for why in _limits(value, schema))
    if isinstance(value, Mapping):
        yield from _fields(value, schema, path)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from faults(each, schema.get("items", {}), f"{path}[{number}]")


def _fits(value: object, schema: Schema) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    kind = schema.get("type")
    return kind is None or (isinstance(value, _TYPES[kind]) and (kind == "boolean") == isinstance(value, bool))


def _limits(value: object, schema: Schema) -> Iterator[str]:
    allowed: Sequence[object] = schema.get("enum", [value])
    if value not in allowed:
        yield f"{value} is none of {', '.join(map(str, allowed))}."
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{value!r} is not of the form {schema['pattern']}"
    if isinstance(value, int | float):
        yield from _range(value, schema.get("minimum"), schema.get("maximum"), str(value))
    for kinds, keyword, unit in _SIZES:
        if isinstance(value, kinds):
            size = len(value)
            yield from _range(size, schema.get(f"min{keyword}"), schema.get(f"max{keyword}"), f"{size} {unit}")


def _range(value: float, least: float | None, most: float | None, shown: str) -> Iterator[str]:
    if least is not None and value < least:
        yield f"{shown}: at least {least} is needed."
    if most is not None and value > most:
        yield f"{shown}: at most {most} is allowed."


def _fields(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[Fault]:
    known: Mapping[str, Schema] = schema.get("properties", {})
    others = schema.get("additionalProperties", bool(schema.get("x-kubernetes-preserve-unknown-fields")))
    for name in schema.get("required", ()):
        if name not in value:
            yield Fault(path, f"{name} is missing.")
    for name, each in value.items():
        here = f"{path}.{name}" if path else name
        if name in known:
            yield from faults(each, known[name], here)
        elif isinstance(others, Mapping):
            yield from faults(each, others, here)
        elif not others:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}."
            yield Fault(path, f"{name} is not known here: {hint}")


def _article(schema: Schema) -> str:
    kind = "integer or string" if schema.get("x-kubernetes-int-or-string") else str(schema["type"])
    return f"an {kind}" if kind[0] in "aio" else f"a {kind}"


def _shown(value: object) -> str:
    """The value, or its shape if it is large."""
    if isinstance(value, Mapping):
        return "a map"
    return "a list" if isinstance(value, list | tuple) else repr(value)
