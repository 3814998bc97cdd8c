"""Whose an object is."""

import msgspec
import pytest

from gpu_control_plane.ray.owned import RayPod, is_owned
from unit.ray.ray_clusters import UID, Json, ray_cluster


@pytest.mark.parametrize(
    ("owner", "namespace", "expected"),
    [
        ({"uid": UID, "controller": True}, "ns", True),
        ({"uid": UID, "controller": False}, "ns", False),
        ({"uid": "another", "controller": True}, "ns", False),
        # Whoever may make pods in another namespace writes whatever uid he likes.
        ({"uid": UID, "controller": True}, "theirs", False),
    ],
)
def test_an_object_belongs_to_its_controller_in_its_own_namespace(owner: Json, namespace: str, expected: bool) -> None:
    reference = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "rc", **owner}
    body = {"metadata": {"name": "p", "namespace": namespace, "ownerReferences": [reference]}}
    assert is_owned(msgspec.convert(body, RayPod), ray_cluster()) is expected
