"""What the Python types say of a spec's fields: which have no effect, and which hold text. Pure."""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import inspect as shape

from gpu_control_plane.kube.fields import NO_EFFECT
from gpu_control_plane.kube.schema import marked


def ineffective_under(kind: type[msgspec.Struct], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Fields without effect at `path` of a spec or below it, as whole paths."""
    yield from _ineffective(shape.type_info(kind), path, ())


def as_text(value: object, kind: type[msgspec.Struct]) -> object:
    """The same spec with numbers written as text where the type has text, as Helm's templates do: `version: 595`
    becomes `version: "595"`."""
    return _as_text(value, shape.type_info(kind))


def _ineffective(node: shape.Type, ahead: tuple[str, ...], here: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    struct = _struct(node)
    if struct is None:
        return
    for field in struct.fields:
        if ahead and field.encode_name != ahead[0]:
            continue
        path = (*here, field.encode_name)
        if marked(field, NO_EFFECT):
            yield path
        else:
            yield from _ineffective(field.type, ahead[1:], path)


def _struct(node: shape.Type) -> shape.StructType | None:
    match node:
        case shape.StructType():
            return node
        case shape.Metadata():
            return _struct(node.type)
        case shape.UnionType():
            return next((found for member in node.types if (found := _struct(member)) is not None), None)
        case _:
            return None


def _as_text(value: object, node: shape.Type) -> object:
    match node, value:
        case shape.Metadata(), _:
            return _as_text(value, node.type)
        case shape.UnionType(), Mapping() | list():
            return next((changed for member in node.types if (changed := _as_text(value, member)) != value), value)
        case shape.StructType(), Mapping():
            known = {field.encode_name: field.type for field in node.fields}
            return {name: _as_text(inner, known[name]) if name in known else inner for name, inner in value.items()}
        case ((shape.VarTupleType() | shape.ListType()), list()):
            return [_as_text(item, node.item_type) for item in value]
        case ((shape.StrType() | shape.EnumType()), int() | float()) if not isinstance(value, bool):
            return str(value)
        case _:
            return value
