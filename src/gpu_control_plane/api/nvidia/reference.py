"""The reference page of NVIDIA's kinds.

A ClusterPolicy has hundreds of fields, most of them the same few in every section. What occurs in several places is
described once, and the places point there.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect as shape

from gpu_control_plane.api.markdown import code, columns, default, field_type, fields, rules, table, text, vocabularies
from gpu_control_plane.api.nvidia import clusterpolicy, names, nvidiadriver
from gpu_control_plane.api.nvidia.fields import Image, Operand
from gpu_control_plane.api.nvidia.status import StackStatus
from gpu_control_plane.kube.crd import Definition
from gpu_control_plane.kube.schema import first_paragraph, structural

_DEFINITIONS: Final = (clusterpolicy.DEFINITION, nvidiadriver.DEFINITION)
_SPECS: Final = (clusterpolicy.ClusterPolicySpec, nvidiadriver.NVIDIADriverSpec)
_FIELD_HEAD: Final = ("Field", "Type", "Default", "Meaning")
_VOCABULARY: Final = (
    ("Labels of Nodes", names.NodeLabel),
    ("Annotations of Nodes", names.NodeAnnotation),
    ("Labels of Pods", names.PodLabel),
    ("Conditions", names.StackCondition),
    ("Reasons in conditions", names.StackReason),
    ("Steps of a driver upgrade", names.UpgradeState),
    ("Reasons of Events", names.StackEvent),
)

type _Struct = type[msgspec.Struct]


def nvidia_reference(header: str) -> str:
    """The whole page as Markdown."""
    chapters = (_opening(header), _policy(), _driver(), _shared_parts(), _status(), _names())
    return "\n".join(line for chapter in chapters for line in chapter).rstrip() + "\n"


def _opening(header: str) -> Iterator[str]:
    yield f"<!-- {header} -->\n"
    yield "# API reference: the kinds of NVIDIA's operator\n"
    yield (
        f"Group `{names.GROUP}`. Both kinds are cluster-scoped, and manifests written for NVIDIA's operator mean the "
        "same here. A field marked \\* is required. Fields that this release does not know are kept and have no "
        f"effect; the condition `{names.StackCondition.UNKNOWN_FIELDS}` names them. `kubectl explain` shows all of "
        "this, too. The kinds of the group `gpu.deckhouse.io` are in the [API reference](api.md).\n"
    )
    yield from table(
        ("Kind", "Version", "Short names", "What it is"),
        (
            (
                f"[{one.resource.kind}](#{one.resource.kind.lower()})",
                code(one.resource.api_version),
                code(*one.short_names),
                text(first_paragraph(one.kind)),
            )
            for one in _DEFINITIONS
        ),
    )


def _policy() -> Iterator[str]:
    spec = clusterpolicy.ClusterPolicySpec
    yield from _kind(clusterpolicy.DEFINITION)
    yield "### ClusterPolicy sections\n"
    yield from table(("Section", "Meaning"), _sections(spec))
    for field in _fields_of(spec):
        section = _struct_in(field.type)
        if section and section not in _SHARED:
            yield f"### spec.{field.encode_name}\n"
            yield from _part(section)


def _driver() -> Iterator[str]:
    yield from _kind(nvidiadriver.DEFINITION)
    yield "### NVIDIADriver spec\n"
    yield from table(_FIELD_HEAD, _rows(nvidiadriver.NVIDIADriverSpec))


def _kind(definition: Definition) -> Iterator[str]:
    kind = definition.resource.kind
    yield f"## {kind}\n"
    yield f"{text(first_paragraph(definition.kind))}\n"
    yield from columns(definition)
    if broken := rules(definition.schema()):
        yield f"### {kind} rules\n"
        yield "Objects that break one of these are refused.\n"
        yield from table(("What the API server says", "Where"), broken)


def _shared_parts() -> Iterator[str]:
    yield "## Shared parts\n"
    for part in sorted(_SHARED, key=lambda part: part.__name__):
        yield f"### {part.__name__}\n"
        yield from _part(part)


def _status() -> Iterator[str]:
    yield "## Status\n"
    yield from table(_FIELD_HEAD, fields(structural(StackStatus), "status"))


def _names() -> Iterator[str]:
    yield "## Names\n"
    yield from vocabularies(_VOCABULARY)


def _sections(spec: _Struct) -> Iterator[tuple[str, str]]:
    schema = structural(spec)
    for field in _fields_of(spec):
        name, section = field.encode_name, _struct_in(field.type)
        anchor = section.__name__.lower() if section and section in _SHARED else f"spec{name.lower()}"
        mark = " \\*" if name in schema["required"] else ""
        yield f"[`{name}`](#{anchor}){mark}", text(schema["properties"][name]["description"])


def _part(part: _Struct) -> Iterator[str]:
    yield f"{text(first_paragraph(part))}\n"
    if base := _base(part):
        yield f"It takes what an [{base.__name__}](#{base.__name__.lower()}) takes. Its own:\n"
    yield from table(_FIELD_HEAD, _rows(part))


def _rows(part: _Struct, path: str = "") -> Iterator[tuple[str, str, str, str]]:
    """The fields that a struct does not share with its base; parts that occur only here are spread out."""
    schema, base = structural(part), _base(part)
    known = structural(base)["properties"] if base else {}
    for field in _fields_of(part):
        name = field.encode_name
        about = schema["properties"][name]
        if known.get(name) == about:
            continue
        mark = " \\*" if name in schema.get("required", ()) else ""
        inner = _struct_in(field.type)
        yield f"`{path}{name}`{mark}", _type(about, inner), default(about), text(about["description"])
        place = f"{path}{name}{'[]' if about.get('type') == 'array' else ''}"
        if inner is None:
            yield from fields(about.get("items", about), place)
        elif inner not in _SHARED:
            yield from _rows(inner, f"{place}.")


def _type(about: dict[str, Any], inner: _Struct | None) -> str:
    if inner is None or inner not in _SHARED:
        return field_type(about)
    link = f"[{inner.__name__}](#{inner.__name__.lower()})"
    return f"list of {link}" if about["type"] == "array" else link


def _base(part: _Struct) -> _Struct | None:
    return next((base for base in (Operand, Image) if issubclass(part, base) and part is not base), None)


def _fields_of(part: _Struct) -> tuple[shape.Field, ...]:
    node = shape.type_info(part)
    assert isinstance(node, shape.StructType)  # noqa: S101 - that is what a Struct's type is
    return node.fields


def _struct_in(node: shape.Type) -> _Struct | None:
    """The struct that a field holds, alone or in a list."""
    match node:
        case shape.StructType():
            return node.cls
        case shape.Metadata():
            return _struct_in(node.type)
        case shape.VarTupleType():
            return _struct_in(node.item_type)
        case shape.UnionType():
            return next(filter(None, map(_struct_in, node.types)), None)
        case _:
            return None


def _occurrences(part: _Struct) -> Iterator[_Struct]:
    for field in _fields_of(part):
        if inner := _struct_in(field.type):
            yield inner
            yield from _occurrences(inner)


_COUNTS: Final = Counter(inner for spec in _SPECS for inner in _occurrences(spec))
_SHARED: Final[frozenset[_Struct]] = frozenset(
    {Image, Operand, *(part for part, count in _COUNTS.items() if count > 1)}
)
