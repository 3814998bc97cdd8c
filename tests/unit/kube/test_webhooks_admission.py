"""What a handler sees and says, as the wire has it."""

import base64
import json
from typing import ClassVar

import msgspec
import pytest

from gpu_control_plane.kube.admission import (
    API_VERSION,
    AdmissionRequest,
    AdmissionResponse,
    BadReviewError,
    Operation,
    allow,
    change,
    deny,
    encode_review,
    parse_review,
)
from gpu_control_plane.kube.objects import Object, Resource


class Spec(msgspec.Struct, frozen=True):
    size: int = 0


class Thing(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("example.org", "v1", "Thing", "things")

    spec: Spec = Spec()


def review(**request: object) -> bytes:
    fields = {
        "uid": "u-1",
        "operation": "CREATE",
        "kind": {"group": "example.org", "version": "v1", "kind": "Thing"},
        "resource": {"group": "example.org", "version": "v1", "resource": "things"},
        "name": "one",
        "namespace": "team",
        "userInfo": {"username": "ann", "groups": ["dev"], "extra": {"scope": ["a"]}},
        "object": {"metadata": {"name": "one"}, "spec": {"size": 3, "colour": "red"}},
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "fieldManager": "kubectl"},
        "unknownField": 1,
    }
    return json.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": fields | request}).encode()


def request(**fields: object) -> AdmissionRequest[Thing]:
    return parse_review(review(**fields), Thing)


def answered(given: AdmissionResponse, **fields: object) -> dict[str, object]:
    body = json.loads(encode_review(request(**fields), given))
    assert (body["apiVersion"], body["kind"]) == (API_VERSION, "AdmissionReview")
    response: dict[str, object] = body["response"]
    assert response.pop("uid") == "u-1"
    return response


def test_a_request_is_typed() -> None:
    seen = request()
    assert seen.object is not None
    assert (seen.object.name, seen.object.spec.size) == ("one", 3)
    assert (seen.operation, seen.name, seen.namespace) == (Operation.CREATE, "one", "team")
    assert (seen.user.username, seen.user.groups, seen.user.extra) == ("ann", ("dev",), {"scope": ("a",)})
    assert (seen.kind.kind, seen.resource.resource, seen.options.field_manager) == ("Thing", "things", "kubectl")
    assert not seen.dry_run


def test_the_whole_object_is_there_too() -> None:
    assert request().document()["spec"] == {"size": 3, "colour": "red"}


def test_a_delete_has_only_an_old_object() -> None:
    seen = request(operation="DELETE", object=None, oldObject={"metadata": {"name": "one"}})
    assert seen.object is None
    assert seen.old_object is not None
    assert seen.document() == {}


def test_a_dry_run_is_known() -> None:
    assert request(dryRun=True).dry_run


def test_a_cluster_scoped_object_has_no_namespace() -> None:
    assert request(namespace="").namespace is None


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "not an AdmissionReview"),
        (b"\xff\xff", "not an AdmissionReview"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", 'got "" of ""'),
        (b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}', 'of "admission.k8s.io/v1beta1"'),
        (b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', "expected an AdmissionReview request"),
        (review(operation="DANCE"), "Invalid enum value 'DANCE'"),
        (review(object={"spec": {"size": "big"}}), "the object is no Thing as this server knows it"),
    ],
)
def test_a_malformed_review_is_reported(body: bytes, sentence: str) -> None:
    with pytest.raises(BadReviewError, match=sentence):
        parse_review(body, Thing)


def test_allowing_is_short() -> None:
    assert answered(allow()) == {"allowed": True}


def test_warnings_and_audit_annotations_are_passed_on() -> None:
    response = allow(warnings=["think twice"], audit={"why": "because"})
    assert answered(response) == {
        "allowed": True,
        "warnings": ["think twice"],
        "auditAnnotations": {"why": "because"},
    }


def test_denying_carries_the_sentence() -> None:
    assert answered(deny("no room; ask for less", code=422, reason="Invalid")) == {
        "allowed": False,
        "status": {"status": "Failure", "message": "no room; ask for less", "reason": "Invalid", "code": 422},
    }


def test_a_change_is_sent_as_a_small_patch() -> None:
    document = request().document()
    document["metadata"] = {"name": "one", "labels": {"a": "b"}}
    response = answered(change(document, warnings=["changed"]))
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(str(response["patch"]))) == [
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
    ]
    assert response["warnings"] == ["changed"]


def test_a_change_that_changes_nothing_has_no_patch() -> None:
    assert answered(change(request().document())) == {"allowed": True}
