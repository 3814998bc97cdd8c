"""A structural schema, applied to a value: every fault is found, and nothing else."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import gpu_control_plane.api
from gpu_control_plane.kube.schema_faults import KEYWORDS, faults

CRDS = Path(gpu_control_plane.api.__file__).with_name("crds")
UNDECIDED = {
    *("description", "default", "format", "x-kubernetes-validations"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"),
}
"""What says nothing about whether a value is right, or is the API server's own to say."""
POOL = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 3, "pattern": "^[a-z]+$"},
        "mode": {"type": "string", "enum": ["MIG", "Exclusive"]},
        "replicas": {"type": "integer", "minimum": 2, "maximum": 64},
        "weight": {"type": "number"},
        "taint": {"type": "boolean"},
        "port": {"x-kubernetes-int-or-string": True},
        "nodes": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
        "labels": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ("", "name is missing.")),
        ({"name": "abcd"}, ("name", "4 characters: at most 3 is allowed.")),
        ({"name": "A"}, ("name", "'A' is not of the form ^[a-z]+$")),
        ({"name": 5}, ("name", "a string is needed here, and this is 5.")),
        ({"name": {}}, ("name", "a string is needed here, and this is a map.")),
        ({"mode": "mig"}, ("mode", "mig is none of MIG, Exclusive.")),
        ({"mod": "MIG"}, ("", "mod is not known here: did you mean mode?")),
        ({"replicas": 1}, ("replicas", "1: at least 2 is needed.")),
        ({"replicas": 65}, ("replicas", "65: at most 64 is allowed.")),
        ({"replicas": True}, ("replicas", "an integer is needed here, and this is True.")),
        ({"taint": 1}, ("taint", "a boolean is needed here, and this is 1.")),
        ({"port": 1.5}, ("port", "an integer or string is needed here, and this is 1.5.")),
        ({"nodes": []}, ("nodes", "0 items: at least 1 is needed.")),
        ({"nodes": ["a", 1]}, ("nodes[1]", "a string is needed here, and this is 1.")),
        ({"labels": {"a": 1}}, ("labels.a", "a string is needed here, and this is 1.")),
        ({"labels": {"a": "", "b": ""}}, ("labels", "2 fields: at most 1 is allowed.")),
    ],
    ids=str,
)
def test_a_fault_has_its_place_and_a_sentence(given: dict[str, Any], found: tuple[str, str]) -> None:
    assert list(faults({"name": "a", **given} if given else {}, POOL)) == [found]


def test_what_is_right_has_no_fault() -> None:
    right = {"name": "a", "mode": "MIG", "replicas": 2, "weight": 1, "taint": False, "port": "http", "nodes": ["a"]}
    assert list(faults({**right, "labels": {"a": "b"}, "open": {"anything": [1]}}, POOL)) == []


def test_our_kinds_say_nothing_that_is_not_looked_at() -> None:
    for file in CRDS.glob("*.yaml"):
        for version in yaml.safe_load(file.read_text())["spec"]["versions"]:
            assert said(version["schema"]["openAPIV3Schema"]) <= KEYWORDS | UNDECIDED, file.name


def said(schema: dict[str, Any]) -> set[str]:
    parts = [*schema.get("properties", {}).values()]
    parts += [schema[name] for name in ("items", "additionalProperties") if isinstance(schema.get(name), dict)]
    return set(schema).union(*map(said, parts))
