"""Which fields of a spec change nothing here: those that the types do not know, and those they accept and ignore.

Works on the spec as the API server holds it, before a type has dropped what it does not name. A list is written as
`env[].foo`, whichever of its items has the field. Maps and Kubernetes' own shapes are passed on, so nothing in them is
unknown.
"""

import functools
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import inspect as shape

from gpu_control_plane.kube.fields import NO_EFFECT
from gpu_control_plane.kube.schema import marked


def unknown_fields(spec: Mapping[str, object], kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Dotted paths of the fields that `kind` does not have, sorted, each once."""
    return tuple(sorted({path for path, field, _ in _fields(spec, _shape(kind), "") if field is None}))


def ineffective_fields(spec: Mapping[str, object], kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Dotted paths of the fields that are accepted without effect, sorted, each once.

    Only where a field asks for something: a default, an empty value or a section that is switched off does not.
    """
    found = _fields(spec, _shape(kind), "")
    return tuple(sorted({path for path, field, value in found if field and _ignored(value, field)}))


type _Found = tuple[str, shape.Field | None, object]


def _fields(value: object, node: shape.Type, path: str) -> Iterator[_Found]:
    """Every field with its path and value; what is inside an unknown one is not looked at."""
    match node, value:
        case shape.Metadata(), _:
            yield from _fields(value, node.type, path)
        case shape.UnionType(), _:
            for member in node.types:
                yield from _fields(value, member, path)
        case shape.StructType(), Mapping():
            known = {field.encode_name: field for field in node.fields}
            for name, inner in value.items():
                here = f"{path}.{name}" if path else str(name)
                field = known.get(name)
                yield here, field, inner
                if field:
                    yield from _fields(inner, field.type, here)
        case ((shape.VarTupleType() | shape.ListType()), list()):
            for item in value:
                yield from _fields(item, node.item_type, f"{path}[]")


def _ignored(value: object, field: shape.Field) -> bool:
    nothing = value in ("", None, [], {}) or (isinstance(value, Mapping) and value.get("enabled") is False)
    return marked(field, NO_EFFECT) and not nothing and value != field.default


@functools.cache
def _shape(kind: type[msgspec.Struct]) -> shape.Type:
    return shape.type_info(kind)
