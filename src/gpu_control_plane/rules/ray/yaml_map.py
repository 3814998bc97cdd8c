"""Maps that users of Ray write as YAML into one field: a runtime environment, a configuration of Ray Serve. Pure.

What such a text may cost to read, and to write as JSON, has a bound: aliases of YAML make gigabytes of a few lines, and
nothing else is done while it is read.
"""

import json
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, Final

import yaml

LIMIT: Final = 128 << 10
"""Characters of a text. An argument of a program, such as the script of a submitter, is no longer on Linux either."""
_SIZE: Final = 2 * LIMIT
"""How much may become of it: characters and values, those of an alias counted each time."""
_MERGES: Final = 20
"""How many maps one map may take over by `<<`."""
_KEYS: Final = 20_000
_INTEGER: Final = 1 << 63
_CACHED: Final = 64


class BadYAMLMap(ValueError):
    """A text that is no such map; the message says why."""


def read_map(text: str) -> dict[str, Any]:
    """The map as JSON can say it; empty if the text says nothing. `BadYAMLMap` for a text that is none."""
    read: dict[str, Any] = json.loads(_as_json(text))
    return read


@lru_cache(_CACHED)
def _as_json(text: str) -> str:
    if len(text) > LIMIT:
        raise BadYAMLMap(f"this has {len(text)} characters: write {LIMIT} at most")
    try:
        return _checked(yaml.load(text, _Loader))  # noqa: S506 - it is a SafeLoader
    except BadYAMLMap:
        raise
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise BadYAMLMap(f"this is no YAML: {error.problem}{line}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise BadYAMLMap(f"this is no YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise BadYAMLMap("this is nested too deeply to be read") from None


class _Loader(yaml.SafeLoader):
    """Ends where maps are merged into more and more."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        merged = [value for key, value in node.value if key.tag == "tag:yaml.org,2002:merge"]
        count = sum(len(value.value) if isinstance(value, yaml.SequenceNode) else 1 for value in merged)
        if count <= _MERGES:
            super().flatten_mapping(node)
        if count > _MERGES or len(node.value) > _KEYS:
            raise BadYAMLMap("this takes over too many maps by <<: write them out")


def _checked(read: object) -> str:
    if read is None:
        return "{}"
    if not isinstance(read, dict):
        raise BadYAMLMap("this is no map: it begins with a key and a colon")
    if any(size > _SIZE for size in accumulate(_sizes(read))):
        raise BadYAMLMap(f"its aliases stand for more than {_SIZE} characters: use fewer")
    return json.dumps(_plain(read))


def _sizes(root: object) -> Iterator[int]:
    """The size of every value; without end where one contains itself."""
    held: list[Iterator[object]] = [iter((root,))]
    while held:
        value = next(held[-1], _NO_MORE)
        if value is _NO_MORE:
            held.pop()
            continue
        yield 1 + len(value) if isinstance(value, str) else 1
        if isinstance(value, dict):
            held.append(chain.from_iterable(value.items()))
        elif isinstance(value, list | tuple | set):
            held.append(iter(value))


_NO_MORE: Final = object()


def _plain(value: object) -> object:
    """The value with keys and scalars that JSON has."""
    match value:
        case dict():
            return {_key(key): _plain(held) for key, held in value.items()}
        case list() | tuple():
            return [_plain(held) for held in value]
        case int() if abs(value) >= _INTEGER:
            raise BadYAMLMap("it has an integer of more than 64 bits: write it as a text in quotes")
        case None | bool() | int() | str():
            return value
        case float() if value - value == 0:
            return value
        case date():
            return value.isoformat()
        case _:
            raise BadYAMLMap(f"{value!r:.60} cannot be said in JSON: write it as a text in quotes")


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool | int):
        return json.dumps(key)
    raise BadYAMLMap(f"{key!r:.60} cannot be a key in JSON: write it as a text in quotes")
