"""The one view of a Pod: what it keeps, what it leaves out, and what it says about a Pod."""

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.pod import DRIVER_CONFIG_DIGEST, Pod, node_of

MOST_BYTES = 4608
"""For a Pod of a driver. At 5,000 nodes with eight operands each that is 180 MiB, and every pod is held once."""


def pod(status: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    body = {"metadata": {"name": "x-1", **metadata}, "spec": spec or {}, "status": status or {}}
    return msgspec.json.decode(msgspec.json.encode(body), type=Pod)


def condition(kind: str, status: str, at: str = "2026-03-02T12:00:00Z") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "Because", "message": "it is so", "lastTransitionTime": at}


def container(name: str) -> dict[str, Any]:
    variables = [{"name": f"VARIABLE_{number}", "value": "a value"} for number in range(10)]
    return {
        "name": name,
        "image": "nvcr.io/nvidia/driver:580.159.04-ubuntu24.04",
        "env": [*variables, {"name": DRIVER_CONFIG_DIGEST, "value": "1234567890"}],
        "resources": {},
        "volumeMounts": [{"name": f"mount-{number}", "mountPath": "/run"} for number in range(8)],
    }


def container_status(name: str, **changes: Any) -> dict[str, Any]:
    running = {"running": {"startedAt": "2026-03-02T12:00:00Z"}}
    return {"name": name, "ready": True, "restartCount": 0, "state": running, "lastState": {}, **changes}


def driver_pod(number: int) -> bytes:
    """A Pod of a driver as the API server sends it."""
    node = f"gpu-node-{number:05}"
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    labels = {
        "app": "nvidia-driver-daemonset",
        "app.kubernetes.io/component": "nvidia-driver",
        "controller-revision-hash": "7d9c8bd5",
        "helm.sh/chart": "gpu-control-plane-0.1.0",
        "nvidia.com/precompiled": "false",
        "pod-template-generation": "1",
    }
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return msgspec.json.encode(
        {
            "metadata": {
                "name": f"nvidia-driver-daemonset-{number:05}",
                "generateName": "nvidia-driver-daemonset-",
                "namespace": "d8-gpu-operator",
                "uid": f"2c7e0b14-0000-0000-0000-{number:012}",
                "resourceVersion": str(100_000 + number),
                "labels": labels,
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "DaemonSet",
                        "name": "nvidia-driver-daemonset",
                        "uid": "2c7e0b14-1111-0000-0000-000000000000",
                        "controller": True,
                    }
                ],
            },
            "spec": {
                "nodeName": node,
                "nodeSelector": {"nvidia.com/gpu.deploy.driver": "true"},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
                "initContainers": [container("k8s-driver-manager")],
                "containers": [container("nvidia-driver-ctr")],
                "volumes": [{"name": f"volume-{number}", "hostPath": {"path": "/run"}} for number in range(9)],
            },
            "status": {
                "phase": "Running",
                "conditions": [condition(kind, "True") for kind in kinds],
                "initContainerStatuses": [container_status("k8s-driver-manager")],
                "containerStatuses": [container_status("nvidia-driver-ctr")],
            },
        }
    )


def test_a_pod_of_a_driver_takes_little_memory() -> None:
    count = 200
    received = [driver_pod(number) for number in range(count)]
    decoder = msgspec.json.Decoder(Pod)
    decoder.decode(received[0])
    gc.collect()
    tracemalloc.start()
    try:
        held = [decoder.decode(body) for body in received]
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(held) == count
    assert taken / count <= MOST_BYTES


def test_what_no_controller_reads_is_left_out() -> None:
    seen = msgspec.json.decode(driver_pod(1), type=Pod)
    assert {held.type for held in seen.status.conditions} == {"Ready", "PodScheduled"}
    assert [variable.name for variable in seen.spec.containers[0].env] == [DRIVER_CONFIG_DIGEST]
    assert seen.spec.volumes == ()


def test_an_empty_dir_is_kept_since_its_data_would_be_lost() -> None:
    seen = pod(spec={"volumes": [{"name": "a", "hostPath": {}}, {"name": "b", "emptyDir": {"medium": "Memory"}}]})
    assert [volume.name for volume in seen.spec.volumes] == ["b"]


def test_a_pod_of_a_daemonset_has_its_node_before_it_is_scheduled() -> None:
    terms = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    waiting, placed = pod(spec={"affinity": affinity}), pod(spec={"affinity": affinity, "nodeName": "b"})
    assert (waiting.spec.target_node, tuple(node_of(waiting))) == ("a", ())
    assert (placed.spec.target_node, tuple(node_of(placed))) == ("b", ("b",))


@pytest.mark.parametrize(
    ("labels", "component"),
    [
        ({"app.kubernetes.io/name": "gpu-control-plane", "app.kubernetes.io/component": "agent"}, "agent"),
        ({"app.kubernetes.io/name": "gpu-control-plane"}, ""),
        ({"app.kubernetes.io/name": "another", "app.kubernetes.io/component": "agent"}, None),
    ],
)
def test_our_pods_are_known_by_their_labels(labels: dict[str, str], component: str | None) -> None:
    assert pod(labels=labels).component == component


@pytest.mark.parametrize(
    ("status", "deleted", "active"),
    [("Pending", False, True), ("Running", False, True), ("Running", True, False), ("Failed", False, False)],
)
def test_a_pod_is_active_until_it_ends_or_is_deleted(status: str, deleted: bool, active: bool) -> None:
    changes: dict[str, Any] = {"deletionTimestamp": "2026-03-02T12:00:00Z"} if deleted else {}
    assert pod({"phase": status}, **changes).active is active


@pytest.mark.parametrize(
    ("conditions", "containers", "ready", "available"),
    [
        ([condition("Ready", "True")], True, True, True),
        ([condition("Ready", "False")], True, False, False),  # its node does not answer
        ([], True, False, True),
        ([condition("Ready", "True")], False, True, False),
    ],
)
def test_readiness(conditions: list[dict[str, str]], containers: bool, ready: bool, available: bool) -> None:
    statuses = [container_status("main", ready=containers)]
    seen = pod({"phase": "Running", "conditions": conditions, "containerStatuses": statuses})
    assert (seen.ready, seen.available) == (ready, available)


@pytest.mark.parametrize(("ended", "crashing"), [("11:59:58", True), ("12:00:30", True), ("11:00:00", False)])
def test_a_restart_explains_only_what_came_with_it(ended: str, crashing: bool) -> None:
    last = {"terminated": {"exitCode": 1, "finishedAt": f"2026-03-02T{ended}Z"}}
    seen = pod(
        {"conditions": [condition("Ready", "False")], "containerStatuses": [container_status("main", lastState=last)]}
    )
    assert seen.crashing is crashing


def test_trouble_names_the_container_or_what_the_scheduler_says() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    assert pod({"containerStatuses": [container_status("main", state=waiting)]}).trouble == (
        "main: ImagePullBackOff: no such image"
    )
    unscheduled = pod({"conditions": [condition("PodScheduled", "False")]})
    assert (unscheduled.unschedulable, unscheduled.trouble) == (True, "Because: it is so")
    assert pod({"phase": "Running", "containerStatuses": [container_status("main")]}).trouble == ""


def test_limits_of_all_containers_are_added_up() -> None:
    asks = [{"resources": {"limits": {"gpu.deckhouse.io/training": amount}}} for amount in ("2", "1k")]
    assert pod(spec={"containers": [*asks, {}]}).limit_of("gpu.deckhouse.io/training") == 1002


@pytest.mark.parametrize(
    ("init", "main", "units"),
    [
        ([("", "2")], ["1"], 2),
        ([("", "2"), ("Always", "3")], ["1"], 4),
        ([("Always", "3"), ("", "2")], ["1"], 5),
        ([], ["9e18", "9e18"], 2**63 - 1),
    ],
    ids=["an init container ends first", "a sidecar stays", "an init container beside a sidecar", "more than there is"],
)
def test_units_are_counted_as_the_scheduler_counts_them(
    init: list[tuple[str, str]], main: list[str], units: int
) -> None:
    def asks(amount: str, policy: str = "") -> dict[str, object]:
        return {"restartPolicy": policy, "resources": {"limits": {"gpu.deckhouse.io/training": amount}}}

    spec = {"initContainers": [asks(amount, policy) for policy, amount in init], "containers": [*map(asks, main)]}
    assert pod(spec=spec).limit_of("gpu.deckhouse.io/training") == units
