"""A definition says everything a CustomResourceDefinition can say, the same way every time."""

from typing import Annotated, Any, ClassVar

import msgspec
import pytest
import yaml

from gpu_control_plane.kube.crd import AGE, Column, Definition, OlderVersion, Scale
from gpu_control_plane.kube.fields import Rule, about
from gpu_control_plane.kube.manifest_yaml import to_yaml
from gpu_control_plane.kube.objects import Object, Resource


class ClockSpec(msgspec.Struct, frozen=True):
    zone: Annotated[str, about("Where it hangs.", maxLength=32)]


class Clock(Object, frozen=True, kw_only=True):
    """Tells the time.

    This paragraph is for programmers.
    """

    resource: ClassVar[Resource] = Resource("example.com", "v2", "Clock", "clocks")
    cel: ClassVar[tuple[Rule, ...]] = (Rule("self.metadata.name != 'sundial'", "sundials need the sun"),)

    spec: ClockSpec


class OldClock(Object, frozen=True, kw_only=True):
    """Told the time."""

    resource: ClassVar[Resource] = Resource("example.com", "v1", "Clock", "clocks")

    hands: int = 2


def version(definition: Definition, name: str = "v2") -> dict[str, Any]:
    (found,) = [one for one in definition.manifest()["spec"]["versions"] if one["name"] == name]
    assert isinstance(found, dict)
    return found


def test_names_follow_from_the_kind_unless_given() -> None:
    assert Definition(kind=Clock).manifest()["spec"]["names"] == {
        "kind": "Clock",
        "listKind": "ClockList",
        "plural": "clocks",
        "singular": "clock",
    }


def test_names_can_be_chosen() -> None:
    definition = Definition(
        kind=Clock, singular="timepiece", list_kind="Clocks", short_names=("cl",), categories=("all",)
    )
    names = definition.manifest()["spec"]["names"]
    assert (names["singular"], names["listKind"], names["shortNames"], names["categories"]) == (
        "timepiece",
        "Clocks",
        ["cl"],
        ["all"],
    )


def test_the_object_is_called_plural_and_group_and_carries_annotations() -> None:
    manifest = Definition(kind=Clock).manifest({"a": "b"})
    assert manifest["metadata"] == {"name": "clocks.example.com", "annotations": {"a": "b"}}


@pytest.mark.parametrize(("namespaced", "scope"), [(True, "Namespaced"), (False, "Cluster")])
def test_scope_comes_from_the_resource(namespaced: bool, scope: str) -> None:
    class Place(Object, frozen=True):
        resource: ClassVar[Resource] = Resource("example.com", "v1", "Place", "places", namespaced=namespaced)

    assert Definition(kind=Place).manifest()["spec"]["scope"] == scope


def test_the_root_knows_its_identity_and_its_rules() -> None:
    schema = Definition(kind=Clock).schema()
    assert list(schema["properties"]) == ["apiVersion", "kind", "metadata", "spec"]
    assert schema["properties"]["metadata"] == {"type": "object"}
    assert schema["required"] == ["spec"]
    assert schema["description"] == "Tells the time."
    assert [rule["message"] for rule in schema["x-kubernetes-validations"]] == ["sundials need the sun"]


def test_columns_fields_and_subresources_are_served() -> None:
    served = version(
        Definition(
            kind=Clock,
            columns=(Column("Zone", ".spec.zone", description="Where", priority=1), AGE),
            selectable=(".spec.zone",),
            scale=Scale(".spec.hands", ".status.hands", ".status.selector"),
        )
    )
    assert served["additionalPrinterColumns"] == [
        {"name": "Zone", "type": "string", "jsonPath": ".spec.zone", "description": "Where", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    assert served["selectableFields"] == [{"jsonPath": ".spec.zone"}]
    assert served["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.hands",
            "statusReplicasPath": ".status.hands",
            "labelSelectorPath": ".status.selector",
        },
    }


def test_a_kind_may_go_without_status() -> None:
    assert "subresources" not in version(Definition(kind=Clock, status=False))


def test_an_older_version_is_served_but_not_stored() -> None:
    definition = Definition(kind=Clock, older=(OlderVersion("v1", OldClock, warning="use v2"), OlderVersion("v1beta1")))
    old, shared = version(definition, "v1"), version(definition, "v1beta1")
    assert (old["served"], old["storage"], old["deprecated"], old["deprecationWarning"]) == (
        True,
        False,
        True,
        "use v2",
    )
    assert "hands" in old["schema"]["openAPIV3Schema"]["properties"]
    assert shared["schema"] == version(definition)["schema"]
    assert "deprecated" not in shared


def test_yaml_is_the_manifest_under_its_header() -> None:
    manifest = Definition(kind=Clock, columns=(AGE, AGE)).manifest()
    text = to_yaml(manifest, "first line\nsecond line")
    assert text.startswith("# first line\n# second line\napiVersion: ")
    assert yaml.safe_load(text) == manifest
    assert "&id" not in text


def test_numbers_share_a_line_in_yaml() -> None:
    assert to_yaml({"starts": [0, 2, 4], "names": ["a"]}) == "starts: [0, 2, 4]\nnames:\n- a\n"
