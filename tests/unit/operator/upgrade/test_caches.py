"""How the view of a node is built from caches."""

from collections.abc import Mapping, Set
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from fault_proxy import plain_config
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, UpgradeState
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Runtime
from gpu_control_plane.operator.upgrade.caches import UpgradeCaches, agent_view
from gpu_control_plane.operator.upgrade.evictor import Evictor
from gpu_control_plane.operator.upgrade.node_view import DriverPod, NodeView, UpgradeLimits
from gpu_control_plane.operator.views import ControllerRevision, DaemonSet

HERE = "gpu"
OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "driver", "uid": "ds", "controller": True}
LABELS = {"app": "nvidia-driver-daemonset", "controller-revision-hash": "new"}
AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


def driver(labels: Mapping[str, str], *owners: Mapping[str, Any], **status: Any) -> Pod:
    env = [{"name": "DRIVER_CONFIG_DIGEST", "value": "abc"}]
    body = {
        "metadata": {
            "name": "driver-x",
            "namespace": HERE,
            "uid": "pod",
            "labels": labels,
            "ownerReferences": owners,
            "creationTimestamp": AT,
        },
        "spec": {
            "nodeName": "worker",
            "containers": [{"name": "c", "image": "example.com/driver:580.95.05-ubuntu24.04", "env": env}],
        },
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": True}], **status},
    }
    return msgspec.convert(body, Pod)


def revision(number: int, word: str, age: int = 60) -> ControllerRevision:
    """One that was made so many seconds before the driver's pod."""
    meta = {
        "creationTimestamp": AT - timedelta(seconds=age),
        "name": f"driver-{number}",
        "namespace": HERE,
        "labels": {"controller-revision-hash": word},
        "ownerReferences": [OWNER],
    }
    return msgspec.convert({"metadata": meta, "revision": number}, ControllerRevision)


def daemonset(digest: str) -> DaemonSet:
    container = {"name": "c", "env": [{"name": "DRIVER_CONFIG_DIGEST", "value": digest}]}
    spec = {"template": {"spec": {"containers": [container]}}}
    return msgspec.convert({"metadata": {"name": "driver", "namespace": HERE, "uid": "ds"}, "spec": spec}, DaemonSet)


def worker(**labels: str) -> Node:
    return msgspec.convert({"metadata": {"name": "worker", "labels": labels}}, Node)


async def view_of(
    *things: Pod | ControllerRevision | DaemonSet, node: Node | None = None, missing_secrets: Set[str] = frozenset()
) -> NodeView:
    """The view of the node `worker` when these exist."""
    runtime = Runtime("test", config=plain_config("http://127.0.0.1:1"), elect=False, status_port=None)
    caches = UpgradeCaches(runtime, HERE, UpgradeLimits())
    for thing in things:
        match thing:
            case Pod():
                caches.pods._store.put(thing)
            case ControllerRevision():
                caches.revisions._store.put(thing)
            case DaemonSet():
                caches.daemonsets._store.put(thing)
    return caches.view(node or worker(), Evictor(runtime.client, lambda: 0.0), missing_secrets=missing_secrets)


async def only(*things: Pod | ControllerRevision | DaemonSet) -> DriverPod:
    (pod,) = (await view_of(*things)).drivers
    return pod


async def test_a_driver_pod_has_digest_and_version() -> None:
    pod = await only(driver(LABELS, OWNER), daemonset("abc"), revision(1, "new"))
    assert pod == DriverPod(
        name="driver-x",
        uid="pod",
        daemonset="driver",
        digest="abc",
        wanted_digest="abc",
        version="580.95.05",
        created=AT.timestamp(),
    )


@pytest.mark.parametrize(
    ("word", "revisions", "current"),
    [
        ("new", (revision(1, "old"), revision(2, "new")), True),
        ("old", (revision(1, "old"), revision(2, "new")), False),
        ("old", (revision(3, "old"), revision(2, "new")), True),
        ("old", (), True),
        ("newer", (revision(1, "old"), revision(2, "new")), True),
        ("newer", (revision(1, "old"), revision(2, "new", 0)), False),
        ("newer", (revision(1, "old"), revision(2, "new", -60)), False),
    ],
    ids=[
        "newest",
        "older",
        "rolled back",
        "no revision is known yet",
        "its revision has not arrived yet",
        "it may be of either",
        "of another DaemonSet, and older than the newest revision",
    ],
)
async def test_a_pod_is_current_if_it_is_of_the_newest_revision(
    word: str, revisions: tuple[ControllerRevision, ...], current: bool
) -> None:
    pod = await only(driver({**LABELS, "controller-revision-hash": word}, OWNER), *revisions)
    assert pod.current is current


@pytest.mark.parametrize(
    ("state", "zone", "wanted"),
    [
        ("upgrade-failed", "a", "new"),
        ("pod-deletion-required", "a", "new"),
        ("upgrade-failed", "b", ""),
        ("upgrade-done", "a", ""),
    ],
    ids=["failed", "in progress", "not selected", "done: not computed"],
)
async def test_the_revision_a_node_is_to_get_is_known_without_a_pod_of_it(state: str, zone: str, wanted: str) -> None:
    node = worker(zone=zone, **{str(NodeLabel.UPGRADE_STATE): state})
    template = {"metadata": {"labels": LABELS}, "spec": {"nodeSelector": {"zone": "a"}}}
    meta = {"name": "driver", "namespace": HERE, "uid": "ds"}
    held = msgspec.convert({"metadata": meta, "spec": {"template": template}}, DaemonSet)
    validator = msgspec.convert({"metadata": {**meta, "name": "other", "uid": "other"}}, DaemonSet)
    view = await view_of(held, validator, revision(1, "old"), revision(2, "new"), node=node)
    assert view.wanted == wanted


async def test_a_node_whose_driver_pod_has_no_owner_knows_whether_another_driver_would_come() -> None:
    held = msgspec.convert(
        {
            "metadata": {"name": "driver", "namespace": HERE, "uid": "ds"},
            "spec": {"template": {"metadata": {"labels": LABELS}}},
        },
        DaemonSet,
    )
    assert (await view_of(driver(LABELS), held, revision(1, "new"))).wanted == "new"
    assert (await view_of(driver(LABELS))).without_successor


async def test_a_pod_that_no_daemonset_owns_is_an_orphan() -> None:
    assert (await only(driver(LABELS))).orphan
    assert (await only(driver(LABELS, {**OWNER, "controller": False}))).orphan


async def test_the_restarts_of_an_init_container_count_until_it_has_finished() -> None:
    init = [
        {"name": "manager", "ready": False, "restartCount": 11, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    ]
    pod = await only(driver(LABELS, OWNER, initContainerStatuses=init, containerStatuses=[{"name": "c"}]))
    assert (pod.ready, pod.restarts, pod.trouble) == (False, 11, "manager: CrashLoopBackOff")
    init[0] |= {"ready": True, "state": {}}
    assert (await only(driver(LABELS, OWNER, initContainerStatuses=init))).restarts == 0


async def test_validators_are_distinguished_from_drivers() -> None:
    view = await view_of(driver({"app": "nvidia-operator-validator"}, OWNER))
    assert not view.drivers
    assert [pod.ready for pod in view.validators] == [True]


def test_an_agent_is_on_the_node_once_it_has_reported() -> None:
    silent = msgspec.convert({"metadata": {"name": "worker"}, "status": {"deviceCount": 8}}, GPUNodeState)
    assert agent_view(silent, node_ready=True) is None
    assert agent_view(None, node_ready=True) is None
    steps = [
        {"name": "driver", "result": "Passed", "at": AT},
        {"name": "cuda", "result": "Failed", "message": "no kernel ran"},
        {"name": "plugin", "result": "Skipped"},
    ]
    status = {"validation": {"driverVersion": "580.1", "steps": steps}, "quiesced": {"since": AT, "reason": "x"}}
    agent = agent_view(msgspec.convert({"status": status}, GPUNodeState), node_ready=False)
    assert agent is not None
    assert (agent.alive, agent.quiesced, agent.checked_driver) == (False, True, "580.1")
    assert (agent.passed, agent.failed) == ({"driver": AT.timestamp()}, {"cuda": "no kernel ran"})


@pytest.mark.parametrize(
    ("source", "state", "found"),
    [
        ({"containers": [{"envFrom": [{"secretRef": {"name": "absent"}}]}]}, UpgradeState.REQUIRED, f"{HERE}/absent"),
        (
            {"volumes": [{"name": "licence", "secret": {"secretName": "absent"}}]},
            UpgradeState.POD_RESTART_REQUIRED,
            f"{HERE}/absent",
        ),
        ({"containers": [{"envFrom": [{"secretRef": {"name": "present"}}]}]}, UpgradeState.REQUIRED, ""),
        ({"volumes": [{"name": "licence", "secret": {"secretName": "absent"}}]}, UpgradeState.DONE, ""),
    ],
)
async def test_a_secret_that_the_driver_of_a_node_names_is_looked_for(
    source: dict[str, object], state: UpgradeState, found: str
) -> None:
    template = {"metadata": {"labels": LABELS}, "spec": source}
    brings = {"metadata": {"name": "driver", "namespace": HERE, "uid": "ds"}, "spec": {"template": template}}
    node = worker(**{str(NodeLabel.UPGRADE_STATE): state.value})
    held = await view_of(msgspec.convert(brings, DaemonSet), node=node, missing_secrets={"absent"})
    assert held.missing_secret == found
