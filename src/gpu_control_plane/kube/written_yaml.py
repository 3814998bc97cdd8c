"""YAML that people have written, read more strictly than YAML asks for.

A key that is given twice would lose its first value without a word, and a few lines of references to references can
stand for more than any memory holds: both are refused, with the line.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

_MOST_NODES: Final = 200_000
"""Values that references may stand for in one document, beside those that are written in it."""
_MOST_LEVELS: Final = 100
_MERGE: Final = "tag:yaml.org,2002:merge"


class BadYAML(ValueError):
    """The text cannot be read. The message is a sentence."""


def read_yaml(content: str | bytes) -> Iterator[Any]:
    """Each document, empty ones as None."""
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise BadYAML(f"This is no text in UTF-8, line {line}: save it as UTF-8.") from None
    # Both are safe: they make nothing but text, numbers, lists and maps.
    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader = kind(text)
    try:
        check_levels(text)
        while loader.check_node():
            node: Any = loader.get_node()
            _Limits().check(node)
            yield loader.construct_document(node)
    except yaml.YAMLError as error:
        raise BadYAML(f"This is no YAML: {_told(error)}.") from error
    except RecursionError:
        raise BadYAML(f"This is nested more than {_MOST_LEVELS} levels deep: no such file is meant.") from None
    finally:
        loader.dispose()


def read_one(content: str | bytes) -> Any:
    """The only document of a text; None if there is none."""
    documents = list(read_yaml(content))
    if len(documents) > 1:
        raise BadYAML(f"There are {len(documents)} documents, and one is expected: remove the lines with ---.")
    return documents[0] if documents else None


def overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """What two files say together, as Helm reads them: maps are merged, everything else is replaced."""
    made = dict(below)
    for name, value in above.items():
        held = made.get(name)
        made[name] = overlaid(held, value) if isinstance(held, Mapping) and isinstance(value, Mapping) else value
    return made


def check_levels(content: str | bytes) -> None:
    """Before nodes are made: that goes level by level on the stack, which in C ends the process."""
    level = 0
    for event in yaml.parse(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
            if level > _MOST_LEVELS:
                raise BadYAML(f"Line {_line(event)}: this is nested more than {_MOST_LEVELS} levels deep.")
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1


def _told(error: yaml.YAMLError) -> str:
    """What the parser says, without its name for a text that is in memory."""
    return " ".join(str(error).replace('in "<unicode string>", ', "in ").split())


class _Limits:
    """What one document may not have, found before anything is made of it."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()

    def check(self, node: yaml.Node) -> int:
        """The number of values in a node. Each node is looked at once, however often it is referred to."""
        known = self._sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in self._open:
            raise BadYAML(f"Line {_line(node)}: this contains itself: write it out.")
        if len(self._open) >= _MOST_LEVELS:
            raise BadYAML(f"Line {_line(node)}: this is nested more than {_MOST_LEVELS} levels deep.")
        self._open.add(id(node))
        size = 1 + sum(self.check(each) for each in self._inside(node))
        self._open.discard(id(node))
        if size - len(self._sizes) > _MOST_NODES:
            raise BadYAML(f"Line {_line(node)}: with its references written out, this is too large to be meant.")
        self._sizes[id(node)] = size
        return size

    def _inside(self, node: yaml.Node) -> Iterator[yaml.Node]:
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
            yield from (each for pair in node.value for each in pair)
        elif isinstance(node, yaml.SequenceNode):
            yield from node.value
        elif node.tag.endswith(":float") and not math.isfinite(_number(node.value)):
            raise BadYAML(f"Line {_line(node)}: {node.value} is no number that Kubernetes knows: write another.")


def _check_keys(node: yaml.MappingNode) -> None:
    seen: dict[tuple[str, str], int] = {}
    for key, _value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        name = (key.tag, key.value)
        if name in seen:
            raise BadYAML(
                f"Line {_line(key)}: {key.value} was there in line {seen[name]}, and only the last would count: "
                "keep one of them."
            )
        seen[name] = _line(key)


def _number(text: str) -> float:
    """Anything but a number that is not finite is left to the reader."""
    spelt = text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan")
    try:
        return float(spelt)
    except ValueError:
        return 0.0


def _line(place: yaml.Node | yaml.Event) -> int:
    return place.start_mark.line + 1 if place.start_mark is not None else 1
