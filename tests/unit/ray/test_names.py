"""Names of what belongs to a RayCluster are KubeRay's, also where they are long."""

import pytest

from gpu_control_plane.api.ray.names import NodeType
from gpu_control_plane.ray.names import (
    head_service_name,
    headless_service_name,
    identifier,
    ingress_name,
    label_value,
    object_name,
    pod_prefix,
    redis_cleanup_job_name,
    serve_service_name,
)

LONG = "a-cluster-with-the-longest-name-that-there-may-be-now"
"""53 characters, as many as a RayCluster may have."""


def test_services_have_their_whole_name() -> None:
    assert head_service_name(LONG) == f"{LONG}-head-svc"
    assert serve_service_name(LONG) == f"{LONG}-serve-svc"
    assert headless_service_name(LONG) == f"{LONG}-headless"


def test_other_objects_have_the_end_of_theirs() -> None:
    assert ingress_name(LONG) == f"{LONG}-head-ingress"[-50:]
    assert (object_name("1abc"), object_name("rc")) == ("rabc", "rc")
    assert object_name("x" * 9 + "-" + "y" * 49) == "r" + "y" * 49
    assert len(redis_cleanup_job_name(LONG)) == 63


def test_pods_have_the_beginning_of_theirs() -> None:
    assert pod_prefix(LONG, "headgroup", NodeType.HEAD) == f"{LONG[:50]}-head-"
    assert pod_prefix("rc", "Group", NodeType.WORKER) == "rc-group-worker-"
    assert pod_prefix("rc", "g" * 60, NodeType.WORKER) == f"rc-{'g' * 47}-worker-"


@pytest.mark.parametrize(
    ("value", "expected"), [("rc-head", "rc-head"), ("a-" + "b" * 63, "b" * 63), ("-" + "b" * 62, "r" + "b" * 62)]
)
def test_a_label_has_the_end_of_what_is_too_long(value: str, expected: str) -> None:
    assert label_value(value) == expected


def test_an_identifier_is_cluster_and_type() -> None:
    assert identifier(LONG, NodeType.WORKER) == f"{LONG}-worker"
