"""What the status of a RayCluster says."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.ray.cluster import ClusterState, RayClusterStatus
from gpu_control_plane.kube.conditions import find, is_true
from gpu_control_plane.ray.cluster.status import Failure, PendingCondition, StatusSnapshot, cluster_status
from gpu_control_plane.ray.owned import OwnedService
from unit.ray.cluster.pod_world import NOW, PodWorld
from unit.ray.ray_clusters import group, ray_cluster, template

HEAD = "headgroup-0"


def world(*groups: dict[str, Any], **spec: Any) -> PodWorld:
    made = PodWorld(ray_cluster(*(groups or (group(replicas=2),)), **spec))
    made.settle()
    return made


def status(made: PodWorld, **more: Any) -> RayClusterStatus:
    """The next status, which the cluster has from then on."""
    fields = {"cluster": made.cluster, "pods": tuple(made.pods.values()), "head_service": None, "now": made.now}
    found = cluster_status(StatusSnapshot(**{**fields, **more}))
    made.cluster = msgspec.structs.replace(made.cluster, status=found)
    return found


def says(found: RayClusterStatus, kind: str) -> tuple[str, str] | None:
    held = find(found.conditions, kind)
    return (held.status, held.reason) if held is not None else None


def test_a_cluster_is_ready_once_all_its_pods_are_up() -> None:
    made = PodWorld(ray_cluster(group(replicas=2)))
    assert status(made).state is None
    made.carry_out(made.plan())
    assert status(made).state is None
    made.all_run()
    found = status(made)
    assert found.state is ClusterState.READY
    assert found.state_transition_times == {"ready": made.now}
    assert says(found, "RayClusterProvisioned") == ("True", "AllPodRunningAndReadyFirstTime")


def test_the_state_stays_and_conditions_tell_the_truth() -> None:
    made = world()
    status(made)
    made.fails("workers-1")
    found = status(made)
    assert found.state is ClusterState.READY
    assert says(found, "RayClusterProvisioned") == ("True", "AllPodRunningAndReadyFirstTime")
    assert says(found, "WorkersReady") == ("False", "WorkersNotReady")


def test_it_is_not_provisioned_while_workers_are_missing() -> None:
    made = world()
    made.delete("workers-1")
    assert says(status(made), "RayClusterProvisioned") == ("False", "RayClusterPodsProvisioning")


def test_pods_are_counted() -> None:
    made = world(group(replicas=3, minReplicas=1, maxReplicas=5, numOfHosts=2))
    made.runs("workers-1", ready=False)
    made.change("workers-2", phase="Pending", conditions=[])
    found = status(made)
    counts = (
        found.ready_worker_replicas, found.available_worker_replicas, found.desired_worker_replicas,
        found.min_worker_replicas, found.max_worker_replicas,
    )  # fmt: skip
    assert counts == (4, 5, 6, 2, 10)


def test_resources_are_added_up() -> None:
    made = world(
        group(replicas=2, template=template({"cpu": "1500m", "memory": "1Gi"}, {"cpu": "500m"})),
        head={"template": template({"cpu": 1, "google.com/tpu": 4})},
    )
    found = status(made, gpus=7)
    assert (found.desired_cpu, found.desired_memory, found.desired_gpu, found.desired_tpu) == (
        "2", str(2 * 1024**3), "7", "4",
    )  # fmt: skip


@pytest.mark.parametrize(("conditions", "containers", "expected"), [
    ([], [], ("False", "Unknown")),
    ([{"type": "Ready", "status": "True"}], [], ("True", "HeadPodRunningAndReady")),
    ([{"type": "Ready", "status": "False", "reason": "PodCompleted"}], [], ("False", "PodCompleted")),
    ([{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}], [], ("False", "ContainersNotReady")),
    ([{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
     [{"name": "ray", "state": {"waiting": {"reason": "ImagePullBackOff"}}}], ("False", "ImagePullBackOff")),
    ([{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
     [{"name": "ray", "state": {"terminated": {"reason": "OOMKilled"}}}], ("False", "OOMKilled")),
    ([{"type": "Ready", "status": "Unknown", "reason": "NodeLost"}], [], ("Unknown", "NodeLost")),
])  # fmt: skip
def test_the_heads_condition_gives_the_reason_of_its_pod(
    conditions: list[dict[str, str]], containers: list[dict[str, Any]], expected: tuple[str, str]
) -> None:
    made = world()
    made.change(HEAD, conditions=conditions, containerStatuses=containers)
    assert says(status(made), "HeadPodReady") == expected


def test_without_a_head_its_condition_says_so() -> None:
    made = world()
    made.delete(HEAD)
    assert says(status(made), "HeadPodReady") == ("False", "HeadPodNotFound")


def test_a_refused_pod_is_said_until_it_is_made() -> None:
    made = world()
    found = status(made, failure=Failure("FailedCreateWorkerPod", "exceeded quota: few"))
    assert says(found, "ReplicaFailure") == ("True", "FailedCreateWorkerPod")
    assert found.reason == "exceeded quota: few"
    found = status(made)
    assert says(found, "ReplicaFailure") is None
    assert not found.reason


def test_an_invalid_spec_is_said() -> None:
    found = status(world(), problem="spec: it is wrong.", problem_reason="InvalidRayClusterSpec")
    assert says(found, "Valid") == ("False", "InvalidRayClusterSpec")
    assert found.reason == "spec: it is wrong."
    assert found.state is None


def test_it_says_what_groups_wait_for() -> None:
    found = status(PodWorld(ray_cluster(group())), waiting={"workers": "it starts when 4 units are free at once"})
    held = find(found.conditions, "WorkersReady")
    assert held is not None
    assert held.message == "group workers: it starts when 4 units are free at once"


def test_the_verdict_about_pools_is_said() -> None:
    assert says(status(world(), capacity=PendingCondition(False, "PoolsCannotServe")), "CapacitySufficient") == (
        "False", "PoolsCannotServe",
    )  # fmt: skip
    assert says(status(world()), "CapacitySufficient") is None


def test_a_suspension_goes_through_its_stages() -> None:
    made = world()
    status(made)
    made.with_spec(ray_cluster(group(replicas=2), suspend=True))
    found = status(made)
    assert (says(found, "RayClusterSuspending"), says(found, "RayClusterSuspended")) == (
        ("True", "RayClusterSuspending"), ("False", "RayClusterSuspended"),
    )  # fmt: skip
    made.carry_out(made.plan())
    found = status(made)
    assert found.state is ClusterState.SUSPENDED
    assert (is_true(found.conditions, "RayClusterSuspending"), is_true(found.conditions, "RayClusterSuspended")) == (
        False, True,
    )  # fmt: skip
    assert says(found, "RayClusterProvisioned") == ("False", "RayClusterPodsProvisioning")
    made.with_spec(ray_cluster(group(replicas=2)))
    found = status(made)
    assert not is_true(found.conditions, "RayClusterSuspended")
    assert found.state is None
    made.settle()
    assert status(made).state is ClusterState.READY


def test_conditions_of_suspension_come_only_with_one() -> None:
    assert says(status(world()), "RayClusterSuspended") is None


@pytest.mark.parametrize(("port", "expected"), [
    ({"name": "dashboard", "port": 80, "targetPort": 8265}, "8265"),
    ({"name": "dashboard", "port": 80, "targetPort": 8265, "nodePort": 30001}, "30001"),
    ({"name": "dashboard", "port": 80, "targetPort": "http"}, "80"),
    ({"name": "dashboard", "port": 80}, "80"),
])  # fmt: skip
def test_endpoints_are_where_ports_are_reached(port: dict[str, Any], expected: str) -> None:
    service = OwnedService(spec={"clusterIP": "10.0.0.9", "ports": [port, {"port": 1}]})
    found = status(world(), head_service=service)
    assert found.endpoints == {"dashboard": expected}
    assert found.head is not None
    assert found.head.service_ip == "10.0.0.9"


def test_a_headless_service_has_the_address_of_the_pod() -> None:
    found = status(world(), head_service=OwnedService(spec={"clusterIP": "None"}))
    assert found.head is not None
    assert found.head.service_ip == found.head.pod_ip == "10.0.0.1"


def test_transition_times_move_with_the_status_only() -> None:
    made = world()
    first = find(status(made).conditions, "HeadPodReady")
    made.now += timedelta(hours=1)
    second = find(status(made).conditions, "HeadPodReady")
    assert first is not None
    assert second is not None
    assert first.last_transition_time == second.last_transition_time >= NOW


def test_workers_that_no_node_has_room_for_are_told_of() -> None:
    made = world(group(replicas=3), upgradeStrategy={"type": "RollingUpdate"})
    refused = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    made.change("workers-1", phase="Pending", conditions=refused)
    held = find(status(made).conditions, "WorkersReady")
    assert held is not None
    assert held.message == (
        "2 of 3 workers ready, and no node has room for 1: a rolling change goes on when they are ready"
    )


def test_of_hundreds_of_groups_that_wait_some_are_named() -> None:
    waiting = {f"g{index:03}": "why" for index in range(500)}
    held = find(status(world(), waiting=waiting).conditions, "WorkersReady")
    assert held is not None
    assert held.message.startswith("group g000: why; group g001: why; ")
    assert held.message.endswith("; group g019: why; 480 more groups waiting")
