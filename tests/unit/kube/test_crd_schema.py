"""A struct becomes a structural schema: what the type says, what `about` adds, and nothing else."""

import enum
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType

from gpu_control_plane.kube.fields import ATOMIC_MAP, PRESERVE_UNKNOWN, OpenEnum, Rule, about
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.kube.schema import SchemaError, structural


class Colour(enum.StrEnum):
    RED = "Red"
    BLUE = "Blue"


class Phase(OpenEnum):
    NEW = "New", "just made."
    OLD = "Old", "about to go."


class Size(enum.IntEnum):
    SMALL = 1


class Inner(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """An inner part.

    With a second paragraph.
    """

    cel: ClassVar[tuple[Rule, ...]] = (Rule("has(self.wide)", "give wide"),)

    wide: Annotated[bool, about("Whether it is wide.", default=True)] = True
    silent: int = 3


def field_of(annotation: Any, default: Any = msgspec.NODEFAULT) -> dict[str, Any]:
    """The schema of one field of this type."""
    definition = ("value", annotation) if default is msgspec.NODEFAULT else ("value", annotation, default)
    schema = structural(msgspec.defstruct("Thing", [definition]))
    field = schema["properties"]["value"]
    assert isinstance(field, dict)
    return field


INNER = {
    "description": "An inner part.",
    "type": "object",
    "properties": {
        "wide": {"description": "Whether it is wide.", "type": "boolean", "default": True},
        "silent": {"type": "integer", "format": "int64"},
    },
    "x-kubernetes-validations": [{"rule": "has(self.wide)", "message": "give wide"}],
}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (int, {"type": "integer", "format": "int64"}),
        (float, {"type": "number", "format": "double"}),
        (bytes, {"type": "string", "format": "byte"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (Annotated[datetime | None, about("At.")], {"description": "At.", "type": "string", "format": "date-time"}),
        (str | None, {"type": "string"}),
        (str | UnsetType, {"type": "string"}),
        (Annotated[str, Meta(max_length=9, pattern="^a")], {"type": "string", "pattern": "^a", "maxLength": 9}),
        (Annotated[int, Meta(ge=0, le=5)], {"type": "integer", "format": "int32", "minimum": 0, "maximum": 5}),
        (Annotated[int, about(maximum=2**31)], {"type": "integer", "format": "int64", "maximum": 2**31}),
        (Annotated[int, about(format="int32")], {"type": "integer", "format": "int32"}),
        (
            Annotated[int, Meta(gt=0, lt=9)],
            {
                "type": "integer",
                "format": "int64",
                "minimum": 0,
                "maximum": 9,
                "exclusiveMinimum": True,
                "exclusiveMaximum": True,
            },
        ),
        (Colour, {"type": "string", "enum": ["Red", "Blue"]}),
        (Size, {"type": "integer", "enum": [1]}),
        (Literal["a", "b"] | None, {"type": "string", "enum": ["a", "b"]}),
        (
            Annotated[Phase | None, about("How far.")],
            {"description": "How far. New: just made. Old: about to go.", "type": "string", "enum": ["New", "Old"]},
        ),
        (int | str, {"x-kubernetes-int-or-string": True}),
        (
            tuple[str, ...],
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
        ),
        (
            Annotated[list[str], Meta(min_length=1, max_length=4)],
            {
                "type": "array",
                "minItems": 1,
                "maxItems": 4,
                "items": {"type": "string"},
                "x-kubernetes-list-type": "atomic",
            },
        ),
        (
            Annotated[tuple[str, ...], about(unique=True)],
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        ),
        (set[str], {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        (
            Annotated[dict[str, Annotated[str, about(maxLength=3)]], Meta(max_length=2)],
            {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string", "maxLength": 3}},
        ),
        (dict[str, Any], {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        (Any, {"x-kubernetes-preserve-unknown-fields": True}),
        (Inner | None, INNER),
        (Annotated[Inner, about(**ATOMIC_MAP)], INNER | {"x-kubernetes-map-type": "atomic"}),
        (Annotated[Inner, about(**PRESERVE_UNKNOWN)], INNER | {"x-kubernetes-preserve-unknown-fields": True}),
    ],
)
def test_types_become_schemas(annotation: Any, expected: dict[str, Any]) -> None:
    assert field_of(annotation) == expected


def test_what_has_no_default_is_required() -> None:
    schema = structural(msgspec.defstruct("Thing", [("a", int), ("b", int, 1), ("c", int | UnsetType, UNSET)]))
    assert schema["required"] == ["a"]


def test_python_defaults_stay_out_of_the_api() -> None:
    assert "default" not in field_of(int, 7)


def test_a_default_that_is_meant_is_published() -> None:
    assert field_of(Annotated[Colour, about(default=True)], Colour.RED)["default"] == "Red"


def test_an_empty_list_can_be_a_default() -> None:
    assert field_of(Annotated[list[str], about(default=True)], [])["default"] == []


def test_a_default_part_is_written_out_with_the_defaults_inside_it() -> None:
    assert field_of(Annotated[Inner, about(default=True)], Inner(wide=False))["default"] == {"wide": False}


def test_a_published_default_needs_a_value() -> None:
    with pytest.raises(SchemaError, match=r"Thing\.value: the API default is the Python default"):
        field_of(Annotated[int, about(default=True)])


def test_a_field_can_be_required_and_have_a_default() -> None:
    kind = msgspec.defstruct("Thing", [("value", Annotated[str, about(default=True, required=True)], "a")])
    schema = structural(kind)
    assert schema["required"] == ["value"]
    assert schema["properties"]["value"] == {"type": "string", "default": "a"}
    assert msgspec.convert({}, kind) == kind()


def test_a_field_without_effect_says_so() -> None:
    field = field_of(Annotated[str, about("Colour of the shed.", effect=False)], "")
    assert field["description"] == "Colour of the shed. Accepted, without effect."
    assert field_of(Annotated[str, about(effect=False)], "")["description"] == "Accepted, without effect."


def test_a_struct_that_keeps_unknown_fields_says_so_and_others_do_not() -> None:
    class Loose(msgspec.Struct):
        keeps_unknown: ClassVar[bool] = True

        inner: Inner
        again: tuple[Inner, ...] = ()

    schema = structural(Loose)
    assert schema["x-kubernetes-preserve-unknown-fields"] is True
    assert list(schema["properties"]) == ["inner", "again"]
    assert schema["properties"]["inner"] == INNER


def test_a_list_with_keys_is_a_map() -> None:
    schema = field_of(Annotated[tuple[Condition, ...], about("State.", keys=("type",), maxItems=8)])
    assert (schema["x-kubernetes-list-type"], schema["x-kubernetes-list-map-keys"]) == ("map", ["type"])
    assert schema["items"]["required"] == ["type", "status", "reason", "lastTransitionTime"]
    assert schema["items"]["properties"]["status"]["enum"] == ["True", "False", "Unknown"]


def test_rules_of_an_alias_a_field_and_a_struct_add_up() -> None:
    name = Annotated[str, about("A name.", Rule("size(self) > 1", "longer"))]
    schema = field_of(Annotated[name, about("Its name.", Rule("self == oldSelf", "fixed"))])
    assert schema["description"] == "Its name."
    assert [rule["message"] for rule in schema["x-kubernetes-validations"]] == ["longer", "fixed"]
    part = field_of(Annotated[Inner | None, about("", Rule("self == oldSelf", "fixed"))])
    assert [rule["message"] for rule in part["x-kubernetes-validations"]] == ["give wide", "fixed"]


def test_a_rule_carries_all_that_kubernetes_knows() -> None:
    rule = Rule(
        "true", "no", message_expression="'no'", reason="FieldValueInvalid", field_path=".a", optional_old_self=True
    )
    (written,) = field_of(Annotated[str, about("", rule)])["x-kubernetes-validations"]
    assert written == {
        "rule": "true",
        "message": "no",
        "messageExpression": "'no'",
        "reason": "FieldValueInvalid",
        "fieldPath": ".a",
        "optionalOldSelf": True,
    }


class Selfish(msgspec.Struct):
    inner: "Selfish | None" = None


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int | bool, "a CRD cannot express this union"),
        (timedelta, "a CRD has no type for timedelta"),
        (Selfish, "Selfish contains itself"),
        (Literal["a", 1], "all strings or all integers"),
    ],
)
def test_what_no_schema_can_express_is_an_error_that_names_the_field(annotation: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words) as failure:
        field_of(annotation)
    assert str(failure.value).startswith("Thing.value")


def test_the_same_type_gives_the_same_schema_in_the_same_order() -> None:
    assert msgspec.json.encode(structural(Inner)) == msgspec.json.encode(structural(Inner))
    assert list(structural(Inner)) == ["description", "type", "properties", "x-kubernetes-validations"]


def test_an_open_enum_keeps_values_it_does_not_know() -> None:
    later = msgspec.json.decode(b'"Later"', type=Phase)
    assert later == "Later"
    assert isinstance(later, Phase)
    assert msgspec.json.encode(later) == b'"Later"'
    assert later not in set(Phase)
