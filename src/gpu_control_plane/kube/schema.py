"""The schema a CRD carries, made from the Python type that reads its objects.

The type is the one source: names, shapes and defaults come from the struct, the rest from `kube.fields`. The same
type always gives the same schema, key by key.
"""

import enum
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect as shape

from gpu_control_plane.kube.fields import API_DEFAULT, OPEN, PRESERVE_UNKNOWN, REQUIRED, OpenEnum, Rule
from gpu_control_plane.kube.objects import Condition

Schema = dict[str, Any]

_INT32_MAX = 2**31 - 1
_ORDER = (
    *("description", "type", "format", "enum", "nullable", "default", "pattern"),
    *("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("items", "additionalProperties", "required", "properties"),
)


class SchemaError(TypeError):
    """A Python type that no structural schema can express; the message names the field."""


def structural(kind: type[msgspec.Struct]) -> Schema:
    """The structural OpenAPI v3 schema of a struct.

    Rules in a class attribute `cel` bind the struct as a whole; with `keeps_unknown` it keeps fields it does not name.
    """
    return _Converter().convert(shape.type_info(kind), kind.__name__)


def first_paragraph(thing: object) -> str:
    """The first paragraph of a docstring on one line: what tools show of a type."""
    return " ".join(inspect.cleandoc(thing.__doc__ or "").split("\n\n", 1)[0].split())


def marked(field: shape.Field, mark: str) -> bool:
    """Whether `about` has put this mark on a field."""
    return isinstance(field.type, shape.Metadata) and mark in (field.type.extra or {})


class _Converter:
    """Walks a type once; remembers the structs it is inside of, since a CRD cannot refer to itself."""

    def __init__(self) -> None:
        self._inside: list[type] = []

    def convert(self, node: shape.Type, path: str) -> Schema:
        return _ordered(self._convert(node, path))

    def _convert(self, node: shape.Type, path: str) -> Schema:
        match node:
            case shape.Metadata():
                return self._annotated(node, path)
            case shape.UnionType():
                return self._union(node, path)
            case shape.StructType():
                return self._struct(node, path)
            case shape.ListType() | shape.VarTupleType() | shape.SetType() | shape.FrozenSetType():
                return self._array(node, path)
            case shape.DictType():
                return self._map(node, path)
            case _:
                return _scalar(node, path)

    def _annotated(self, node: shape.Metadata, path: str) -> Schema:
        schema = self._convert(node.type, path)
        outer = dict(node.extra_json_schema or {})
        meanings = schema.get("description", "") if _enum_of(node.type) else ""
        if meanings and "description" in outer:
            outer["description"] = f"{outer['description']} {meanings}"
        schema |= outer
        if OPEN in (node.extra or {}):
            schema.pop("enum", None)
        if schema.get("type") == "integer" and "format" not in outer:
            schema["format"] = _int_format(schema.get("maximum"))
        _add_rules(schema, (rule for rule in (node.extra or {}).values() if isinstance(rule, Rule)))
        return schema

    def _union(self, node: shape.UnionType, path: str) -> Schema:
        """Absence is the only null an API has, so `T | None` is `T`; int-or-string is the only other union."""
        members = [member for member in node.types if not isinstance(member, shape.NoneType)]
        if len(members) == 1:
            return self._convert(members[0], path)
        if {type(member) for member in members} == {shape.IntType, shape.StrType}:
            return {"x-kubernetes-int-or-string": True}
        raise SchemaError(f"{path}: a CRD cannot express this union. Give each alternative a field of its own.")

    def _struct(self, node: shape.StructType, path: str) -> Schema:
        if node.cls is Condition:
            return {**_CONDITION}
        if node.cls in self._inside:
            raise SchemaError(f"{path}: {node.cls.__name__} contains itself, which a CRD cannot express.")
        self._inside.append(node.cls)
        properties = {field.encode_name: self._field(field, f"{path}.{field.encode_name}") for field in node.fields}
        self._inside.pop()
        schema: Schema = {"type": "object", "properties": properties}
        if description := first_paragraph(node.cls):
            schema["description"] = description
        if required := [field.encode_name for field in node.fields if field.required or marked(field, REQUIRED)]:
            schema["required"] = required
        if getattr(node.cls, "keeps_unknown", False):
            schema |= PRESERVE_UNKNOWN
        _add_rules(schema, getattr(node.cls, "cel", ()))
        return schema

    def _field(self, field: shape.Field, path: str) -> Schema:
        schema = self.convert(field.type, path)
        if not marked(field, API_DEFAULT):
            return schema
        if field.default is not msgspec.NODEFAULT:
            default = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        else:
            raise SchemaError(f"{path}: the API default is the Python default, and there is none.")
        return _ordered(schema | {"default": _api_default(default)})

    def _array(
        self, node: shape.ListType | shape.VarTupleType | shape.SetType | shape.FrozenSetType, path: str
    ) -> Schema:
        kind = "set" if isinstance(node, shape.SetType | shape.FrozenSetType) else "atomic"
        schema: Schema = {
            "type": "array",
            "items": self.convert(node.item_type, f"{path}[]"),
            "x-kubernetes-list-type": kind,
        }
        return schema | _given(minItems=node.min_length, maxItems=node.max_length)

    def _map(self, node: shape.DictType, path: str) -> Schema:
        bounds = _given(minProperties=node.min_length, maxProperties=node.max_length)
        if isinstance(node.value_type, shape.AnyType):
            return {"type": "object", **PRESERVE_UNKNOWN, **bounds}
        return {"type": "object", "additionalProperties": self.convert(node.value_type, f"{path}{{}}"), **bounds}


def _api_default(value: object) -> object:
    """A default with the API defaults inside it written out: rules see it before its own parts are filled in."""
    if not isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    node = shape.type_info(type(value))
    assert isinstance(node, shape.StructType)  # noqa: S101 - that is what a Struct's type is
    fields = [field for field in node.fields if marked(field, API_DEFAULT)]
    return {field.encode_name: _api_default(getattr(value, field.name)) for field in fields}


def _scalar(node: shape.Type, path: str) -> Schema:
    match node:
        case shape.StrType():
            bounds = _given(minLength=node.min_length, maxLength=node.max_length, pattern=node.pattern)
            schema = {"type": "string"} | bounds
        case shape.IntType():
            schema = {"type": "integer", "format": _int_format(node.le)} | _range(node)
        case shape.FloatType():
            schema = {"type": "number", "format": "double"} | _range(node)
        case shape.EnumType():
            schema = _enum([member.value for member in node.cls], path) | _given(description=_meanings(node.cls))
        case shape.LiteralType():
            schema = _enum(list(node.values), path)
        case _ if type(node) in _PLAIN:
            schema = dict(_PLAIN[type(node)])
        case _:
            raise SchemaError(f"{path}: a CRD has no type for {type(node).__name__.removesuffix('Type').lower()}.")
    return schema


_PLAIN: Final[Mapping[type[shape.Type], Mapping[str, Any]]] = {
    shape.BoolType: {"type": "boolean"},
    shape.DateTimeType: {"type": "string", "format": "date-time"},
    shape.BytesType: {"type": "string", "format": "byte"},
    shape.AnyType: PRESERVE_UNKNOWN,
    shape.RawType: PRESERVE_UNKNOWN,
}


def _int_format(maximum: int | None) -> str:
    return "int32" if maximum is not None and maximum <= _INT32_MAX else "int64"


def _enum(values: list[Any], path: str) -> Schema:
    for kind, name in ((str, "string"), (int, "integer")):
        if all(type(value) is kind for value in values):
            return {"type": name, "enum": values}
    raise SchemaError(f"{path}: the values of an enum are all strings or all integers.")


def _enum_of(node: shape.Type) -> bool:
    if isinstance(node, shape.UnionType):
        return any(_enum_of(member) for member in node.types)
    return isinstance(node, shape.EnumType)


def _meanings(kind: type[enum.Enum]) -> str | None:
    members = [member for member in kind if isinstance(member, OpenEnum) and member.meaning]
    return " ".join(f"{member.value or '(empty)'}: {member.meaning}" for member in members) or None


def _range(node: shape.IntType | shape.FloatType) -> Schema:
    bounds = _given(minimum=node.ge, maximum=node.le)
    if node.gt is not None:
        bounds |= {"minimum": node.gt, "exclusiveMinimum": True}
    if node.lt is not None:
        bounds |= {"maximum": node.lt, "exclusiveMaximum": True}
    return bounds


def _given(**values: object) -> Schema:
    return {name: value for name, value in values.items() if value is not None}


def _add_rules(schema: Schema, rules: Iterable[Rule]) -> None:
    if added := [msgspec.to_builtins(rule) for rule in rules]:
        schema["x-kubernetes-validations"] = [*schema.get("x-kubernetes-validations", ()), *added]


def _ordered(schema: Schema) -> Schema:
    """The same schema with its keys in the order people read it in, extensions last."""
    known = {key: schema[key] for key in _ORDER if key in schema}
    return known | {key: schema[key] for key in sorted(schema.keys() - known.keys())}


_CONDITION: Final[Schema] = {
    "description": "One aspect of the object's state, as last observed.",
    "type": "object",
    "required": ["type", "status", "reason", "lastTransitionTime"],
    "properties": {
        "type": {
            "description": "Name of the condition.",
            "type": "string",
            "minLength": 1,
            "maxLength": 316,
        },
        "status": {
            "description": "Whether the condition holds.",
            "type": "string",
            "enum": ["True", "False", "Unknown"],
        },
        "reason": {
            "description": "One CamelCase word for programs: why the condition has this status.",
            "type": "string",
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            "minLength": 1,
            "maxLength": 1024,
        },
        "message": {
            "description": "A sentence for people: why, and what to do about it.",
            "type": "string",
            "maxLength": 32768,
        },
        "lastTransitionTime": {
            "description": "When the status last changed.",
            "type": "string",
            "format": "date-time",
        },
        "observedGeneration": {
            "description": "Generation of the spec that this condition speaks of.",
            "type": "integer",
            "format": "int64",
            "minimum": 0,
        },
    },
}
