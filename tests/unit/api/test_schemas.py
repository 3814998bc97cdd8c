"""What holds for every field of the API."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpu_control_plane.api import DEFINITIONS
from gpu_control_plane.kube.crd import Definition

each_kind = pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.resource.kind)


@each_kind
def test_every_field_has_a_sentence(definition: Definition) -> None:
    assert [path for path, field in _fields(definition) if not field.get("description", "").endswith(".")] == []


@each_kind
def test_everything_that_grows_is_bounded(definition: Definition) -> None:
    assert [path for path, field in _everything(definition) if not _bounded(field)] == []


@each_kind
def test_lists_of_objects_have_keys_or_belong_to_one_writer(definition: Definition) -> None:
    lists = {path for path, field in _fields(definition) if field.get("x-kubernetes-list-type") == "map"}
    keyed = {f"{path}[].{key}" for path, field in _fields(definition) for key in _keys(field)}
    required = {
        f"{path}[].{name}"
        for path, field in _fields(definition)
        if path in lists
        for name in field["items"]["required"]
    }
    assert keyed <= required


@each_kind
def test_columns_and_selectable_fields_point_at_fields_that_exist(definition: Definition) -> None:
    known = {path for path, _ in _fields(definition)}
    plain = [
        path for path in (column.path for column in definition.columns) if "[" not in path and ".metadata" not in path
    ]
    assert {path.removeprefix(".") for path in (*plain, *definition.selectable)} <= known


@each_kind
def test_messages_are_sentences_for_people(definition: Definition) -> None:
    for _, field in _everything(definition):
        for rule in field.get("x-kubernetes-validations", ()):
            assert len(rule["message"]) <= 160
            assert not rule["message"].startswith("must")


@pytest.mark.parametrize(
    ("kind", "path", "keys"),
    [
        ("GPUDevice", "status.conditions", ["type"]),
        ("GPUNodeState", "spec.assignments", ["inventoryID"]),
        ("GPUNodeState", "status.conditions", ["type"]),
        ("GPUPool", "spec.quotas", ["namespace"]),
        ("GPUPool", "spec.access.serviceAccounts", ["namespace", "name"]),
        ("GPUPool", "spec.scheduling.taints", ["key", "effect"]),
        ("GPUPool", "status.capacity", ["name"]),
    ],
)
def test_lists_merge_by_these_keys(kind: str, path: str, keys: list[str]) -> None:
    (definition,) = [one for one in DEFINITIONS if one.resource.kind == kind]
    assert dict(_fields(definition))[path]["x-kubernetes-list-map-keys"] == keys


@pytest.mark.parametrize(
    ("path", "default"),
    [
        ("spec.allocation", {"mode": "Exclusive"}),
        ("spec.allocation.mode", "Exclusive"),
        ("spec.assignment.requireAnnotation", True),
        ("spec.scheduling", {"strategy": "BinPack", "reservationTTL": "5m", "numa": "Preferred"}),
        ("spec.backend", "DevicePlugin"),
    ],
)
def test_the_api_has_these_defaults(path: str, default: object) -> None:
    assert dict(_fields(DEFINITIONS[2]))[path]["default"] == default


def test_only_what_people_write_has_defaults() -> None:
    defaulted = {path for definition in DEFINITIONS for path, field in _fields(definition) if "default" in field}
    assert all(path.startswith("spec.") for path in defaulted)


def _bounded(field: dict[str, Any]) -> bool:
    match field.get("type"):
        case "array":
            return "maxItems" in field
        case "object" if "additionalProperties" in field:
            return "maxProperties" in field
        case "string":
            return bool({"maxLength", "enum", "format"} & field.keys()) or "{4}" in field.get("pattern", "")
        case _:
            return True


def _keys(field: dict[str, Any]) -> list[str]:
    keys: list[str] = field.get("x-kubernetes-list-map-keys", [])
    return keys


def _fields(definition: Definition) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every named field of spec and status."""
    return ((path, field) for path, field in _everything(definition) if not path.endswith("[]"))


def _everything(definition: Definition) -> Iterator[tuple[str, dict[str, Any]]]:
    properties = definition.schema()["properties"]
    for name in ("spec", "status"):
        yield from _walk(properties[name], name)


def _walk(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from _walk(field, f"{path}.{name}")
    if "items" in schema:
        yield from _walk(schema["items"], f"{path}[]")
