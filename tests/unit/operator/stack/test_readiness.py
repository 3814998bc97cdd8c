"""When a DaemonSet counts as ready, where it is expected, and what is reported of each node on which it is not
ready."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.node import Node, NodeSpec, Taint
from gpu_control_plane.api.nvidia.status import MAX_NODES_NAMED
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.operator.stack.daemonset_readiness import became_idle, tolerations_of
from gpu_control_plane.operator.stack.readiness import (
    Readiness,
    Toleration,
    node_coverage,
    readiness_of,
    schedulable_nodes,
    trouble_of,
    unmatched_nodes,
)
from gpu_control_plane.operator.views import DaemonSet, UpdateStrategy

ALL_GOOD = {
    "observedGeneration": 2,
    "desiredNumberScheduled": 3,
    "updatedNumberScheduled": 3,
    "numberAvailable": 3,
}
NODES = ("a", "b", "c")


def daemonset(**numbers: int) -> DaemonSet:
    return msgspec.convert({"metadata": {"name": "x", "generation": 2}, "status": {**ALL_GOOD, **numbers}}, DaemonSet)


def pod(status: Mapping[str, Any], **metadata: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "x-1", **metadata}, "status": status}, Pod)


def stands(daemonset: DaemonSet, *expected: str, unready: Mapping[str, Pod | None] | None = None) -> Readiness:
    return readiness_of(daemonset, expected, lambda: unready or {})


def node(name: str = "a", *taints: tuple[str, str], labels: Mapping[str, str] | None = None) -> Node:
    held = [{"key": key, "effect": effect} for key, effect in taints]
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": dict({"gpu": "yes"} if labels is None else labels)},
            "spec": {"taints": held},
        },
        Node,
    )


IDLE = {"desiredNumberScheduled": 0, "updatedNumberScheduled": 0, "numberAvailable": 0}


@pytest.mark.parametrize(
    ("before", "after", "fell"),
    [
        ({}, IDLE, True),
        ({"numberMisscheduled": 1, **IDLE}, IDLE, True),
        ({"observedGeneration": 1, **IDLE}, IDLE, True),
        ({}, {"observedGeneration": 1, **IDLE}, False),
        (IDLE, IDLE, False),
        (IDLE, {}, False),
    ],
    ids=["no node left", "no stray pod left", "looked at now", "not looked at yet", "idle before", "busy again"],
)
def test_a_daemonset_falls_idle_once_kubernetes_says_so_of_what_it_is_now(
    before: dict[str, int], after: dict[str, int], fell: bool
) -> None:
    assert became_idle(daemonset(**before), daemonset(**after)) is fell
    assert not became_idle(None, daemonset(**after))
    assert not became_idle(daemonset(**before), None)


@pytest.mark.parametrize(
    ("numbers", "expected", "ready", "word"),
    [
        ({}, NODES, True, ""),
        ({}, (), True, ""),
        ({"observedGeneration": 1}, NODES, False, "latest change"),
        ({"observedGeneration": 0, "desiredNumberScheduled": 0}, NODES, False, "latest change"),
        # A fresh DaemonSet has the numbers of one that is wanted nowhere.
        (dict.fromkeys(("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"), 0), NODES, False, "3"),
        (dict.fromkeys(("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"), 0), (), True, ""),
        (dict.fromkeys(("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"), 2), NODES, False, "1"),
        ({"numberAvailable": 2}, NODES, False, "2 of 3"),
        ({"updatedNumberScheduled": 1}, NODES, False, "2 pods are of an older version"),
        # A node was just deleted, and the DaemonSet controller has not counted anew.
        ({}, NODES[:2], True, ""),
    ],
)
def test_when_a_daemonset_is_ready(numbers: dict[str, int], expected: tuple[str, ...], ready: bool, word: str) -> None:
    found = stands(daemonset(**numbers), *expected)
    assert found.ready is ready
    assert word in found.message
    assert bool(found.message) is not ready


def test_the_pods_are_not_looked_at_while_the_numbers_are_good() -> None:
    def never() -> dict[str, Pod | None]:
        raise AssertionError

    assert readiness_of(daemonset(), NODES, never).ready


def test_adopted_pods_count_as_outdated_whatever_the_numbers_say() -> None:
    found = readiness_of(daemonset(), NODES, dict, lambda: 2)
    assert not found.ready
    assert "2 pods are of an older version" in found.message


def test_no_more_nodes_are_named_than_are_desired() -> None:
    names = [f"n{number:03}" for number in range(100)]
    found = stands(daemonset(desiredNumberScheduled=100), *names, unready=dict.fromkeys(names))
    assert (found.desired, found.available) == (100, 3)
    assert [trouble.node for trouble in found.troubles] == names[:MAX_NODES_NAMED]


def _waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"name": "main", "ready": False, "state": {"waiting": {"reason": reason, "message": message}}}


_RUNNING = {"name": "main", "ready": True, "state": {}}


@pytest.mark.parametrize(
    ("status", "metadata", "reason", "words"),
    [
        (
            {"containerStatuses": [_waiting("ImagePullBackOff", "no such image: x")]},
            {},
            "ImagePullBackOff",
            "main: no such image: x",
        ),
        (
            {
                "initContainerStatuses": [_waiting("CrashLoopBackOff")],
                "containerStatuses": [_waiting("PodInitializing")],
            },
            {},
            "CrashLoopBackOff",
            "main",
        ),
        (
            {
                "containerStatuses": [
                    {"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
                ]
            },
            {},
            "OOMKilled",
            "main",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 1 Insufficient cpu.",
                    }
                ],
            },
            {},
            "Unschedulable",
            "Insufficient cpu",
        ),
        ({"containerStatuses": [_RUNNING]}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Terminating", "replaced"),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. And so on"},
            {},
            "Evicted",
            "low on resource: memory",
        ),
        ({"phase": "Failed"}, {}, "PodFailed", "failed"),
        (
            {"initContainerStatuses": [{"name": "driver-validation", "ready": False}]},
            {},
            "NotReady",
            "driver-validation has not finished",
        ),
        # As a kubelet puts it: while one runs, all that come after it are initializing.
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"name": "first", "ready": True, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                    {"name": "driver-validation", "ready": False, "state": {"running": {}}},
                    _waiting("PodInitializing"),
                ],
                "containerStatuses": [_waiting("PodInitializing")],
            },
            {},
            "NotReady",
            "driver-validation has not finished",
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [_waiting("PodInitializing")],
                "containerStatuses": [_waiting("PodInitializing")],
            },
            {},
            "ContainerCreating",
            "main is being created; `kubectl describe pod` says what it waits for",
        ),
        (
            {"phase": "Pending", "containerStatuses": [_RUNNING, _waiting("ContainerCreating")]},
            {},
            "ContainerCreating",
            "kubectl describe pod",
        ),
        (
            {"containerStatuses": [_waiting("CreateContainerConfigError", 'secret "tokens" not found')]},
            {},
            "CreateContainerConfigError",
            'secret "tokens" not found',
        ),
        ({"phase": "Running", "containerStatuses": [{"name": "main"}]}, {}, "NotReady", "not all of its containers"),
        (
            {
                "phase": "Running",
                "containerStatuses": [_RUNNING],
                "conditions": [{"type": "Ready", "status": "False"}],
            },
            {},
            "NotReady",
            "its node does not answer",
        ),
    ],
)
def test_why_a_pod_does_not_work(status: dict[str, Any], metadata: dict[str, Any], reason: str, words: str) -> None:
    found = trouble_of("a", pod(status, **metadata))
    assert (found.node, found.reason) == ("a", reason)
    assert words in found.message
    assert "x-1" in found.message


def test_a_node_without_a_pod_is_named() -> None:
    found = trouble_of("a", None)
    assert (found.node, found.reason) == ("a", "PodMissing")
    assert "set psa.enabled" in found.message


def test_messages_fit_into_a_status() -> None:
    found = trouble_of("a", pod({"containerStatuses": [_waiting("ErrImagePull", "x" * 5000)]}))
    assert len(found.message) <= 1024
    assert len(found.reason) <= 64


@pytest.mark.parametrize(
    ("spec", "taints", "comes"),
    [
        ({}, [], True),
        ({}, [("nvidia.com/gpu", "NoSchedule")], False),
        ({}, [("nvidia.com/gpu", "PreferNoSchedule")], True),
        ({"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}, [("nvidia.com/gpu", "NoSchedule")], True),
        (
            {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}]},
            [("nvidia.com/gpu", "NoSchedule")],
            False,
        ),
        ({"tolerations": [{"key": "a", "operator": "Exists"}]}, [("a", "NoSchedule"), ("b", "NoSchedule")], False),
        ({"tolerations": [{"operator": "Exists"}]}, [("a", "NoSchedule"), ("b", "NoExecute")], True),
        ({"tolerations": [{"key": "a", "value": "no"}]}, [("a", "NoSchedule")], False),
        # What Kubernetes itself adds to pods of DaemonSets.
        ({}, [("node.kubernetes.io/unschedulable", "NoSchedule")], True),
        ({}, [("node.kubernetes.io/disk-pressure", "NoSchedule")], True),
        ({}, [("node.kubernetes.io/not-ready", "NoExecute")], True),
        ({}, [("node.kubernetes.io/not-ready", "NoSchedule")], False),
        ({}, [("node.kubernetes.io/out-of-service", "NoExecute")], False),
        ({}, [("node.kubernetes.io/network-unavailable", "NoSchedule")], False),
        ({"hostNetwork": True}, [("node.kubernetes.io/network-unavailable", "NoSchedule")], True),
    ],
)
def test_to_which_nodes_pods_come(spec: dict[str, Any], taints: list[tuple[str, str]], comes: bool) -> None:
    found = schedulable_nodes({"gpu": "yes"}, tolerations_of(spec), [node("a", *taints)])
    assert found == (["a"] if comes else [])


def test_pods_come_only_to_nodes_with_all_the_labels() -> None:
    nodes = [node("a", labels={"gpu": "yes", "os": "x"}), node("b", labels={"gpu": "yes"}), node("c", labels={})]
    assert schedulable_nodes({"gpu": "yes"}, (), nodes) == ["a", "b"]
    assert schedulable_nodes({"gpu": "yes", "os": "x"}, (), nodes) == ["a"]


def test_a_toleration_with_a_value_bears_only_that_value() -> None:
    taint = msgspec.convert(
        {"spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}}, Node
    ).spec.taints
    assert Toleration(key="a", value="b").tolerates(taint[0])
    assert not Toleration(key="a", value="c").tolerates(taint[0])


def test_a_pod_that_waits_for_the_scheduler_is_known_by_the_node_it_is_made_for() -> None:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-7"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    made = msgspec.convert({"spec": {"affinity": affinity}}, Pod)
    assert made.spec.target_node == "gpu-7"
    assert msgspec.convert({"spec": {"affinity": affinity, "nodeName": "b"}}, Pod).spec.target_node == "b"
    assert Pod().spec.target_node == ""


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        ("RollingUpdate", "2 pods are of an older version"),
        ("OnDelete", "2 pods are of an older version; each is replaced when it is deleted"),
    ],
)
def test_outdated_pods_that_stay_until_they_are_deleted_are_reported(strategy: str, says: str) -> None:
    held = daemonset(updatedNumberScheduled=1)
    spec = msgspec.structs.replace(held.spec, update_strategy=UpdateStrategy(type=strategy))
    assert stands(msgspec.structs.replace(held, spec=spec), *NODES).message == says


@pytest.mark.parametrize(
    ("taints", "why"),
    [
        ([], ""),
        ([("a", "PreferNoSchedule")], ""),
        ([("node.kubernetes.io/unschedulable", "NoSchedule")], ""),
        ([("node.kubernetes.io/not-ready", "NoSchedule")], "node.kubernetes.io/not-ready:NoSchedule"),
        ([("node.kubernetes.io/not-ready", "NoExecute"), ("team", "NoExecute")], "team=yes:NoExecute"),
    ],
)
def test_the_taint_that_keeps_pods_away_is_named(taints: list[tuple[str, str]], why: str) -> None:
    held = [Taint(key=key, value="yes" if key == "team" else "", effect=effect) for key, effect in taints]
    tainted = msgspec.structs.replace(node("a"), spec=NodeSpec(taints=tuple(held)))
    found = node_coverage({"gpu": "yes"}, tolerations_of({}), [tainted])
    assert (found.schedulable, found.tainted) == (((), {"a": why}) if why else (("a",), {}))


def test_nodes_that_no_daemonset_is_for_are_named_with_the_labels_they_lack() -> None:
    selectors = [{"gpu": "yes", "os": "x", "kernel": "1"}, {"gpu": "yes", "os": "y", "kernel": "1"}]
    nodes = [
        labelled("suited", gpu="yes", os="x", kernel="1"),
        labelled("unknown", gpu="yes", os="x"),
        labelled("other", gpu="yes", os="z", kernel="1"),
    ]
    found = unmatched_nodes(selectors, nodes)
    assert found is not None
    assert (found.ready, found.desired, found.available, found.message) == (False, 2, 0, "nothing suits 2 nodes")
    assert {held.node: held.reason for held in found.troubles} == dict.fromkeys(("other", "unknown"), "NothingSuits")
    other, unknown = found.troubles
    assert "no DaemonSet for nodes of its kind" in other.message
    assert "it lacks the labels by which its DaemonSet is chosen: kernel." in unknown.message
    assert unmatched_nodes(selectors, nodes[:1]) is None


def labelled(name: str, **labels: str) -> Node:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Node)
