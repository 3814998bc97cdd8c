"""Whether settings of our own module are what its schema takes. Deckhouse would refuse them as well, but only in a
cluster that is half installed. Pure."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

KEYWORDS: Final = frozenset(
    {"type", "properties", "additionalProperties", "items", "enum", "pattern", "minimum", "maximum"}
)
"""Of a schema, what is looked at here: `tools/module_settings.py` refuses to leave out any other that decides."""

_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
}

type Schema = Mapping[str, Any]


def wrong_settings(settings: Mapping[str, Any]) -> list[str]:
    """Every fault, as a path and what is wrong there."""
    return list(_faults(settings, _schema(), "spec.settings"))


@cache
def _schema() -> Schema:
    text = (resources.files("gpu_control_plane.deckhouse") / "module_settings.json").read_text()
    schema: Schema = json.loads(text)
    return schema


def _faults(value: Any, schema: Schema, path: str) -> Iterator[str]:
    kind = schema["type"]
    if not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        yield f"{path} has to be {'an' if kind[0] in 'aio' else 'a'} {kind}."
    elif isinstance(value, dict):
        yield from _fields(value, schema, path)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _faults(each, schema["items"], f"{path}[{number}]")
    elif value not in schema.get("enum", [value]):
        yield f"{path}: {value} is none of {', '.join(schema['enum'])}."
    elif isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{path}: {value!r} is not of the form {schema['pattern']}"
    elif isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value} is not between {schema.get('minimum', '…')} and {schema.get('maximum', '…')}."


def _fields(given: dict[str, Any], schema: Schema, path: str) -> Iterator[str]:
    known: Mapping[str, Schema] = schema.get("properties", {})
    others = schema.get("additionalProperties", False)
    for name, value in given.items():
        if name in known:
            yield from _faults(value, known[name], f"{path}.{name}")
        elif others:
            yield from _faults(value, others, f"{path}.{name}")
        else:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}."
            yield f"{path}: {name} is not known here: {hint}"
