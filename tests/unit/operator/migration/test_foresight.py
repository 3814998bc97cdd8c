"""A plan says what would happen: with NVIDIADrivers, with agents that serve their nodes, and what would do harm."""

from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.gpunodestate import Driver, DriverSource, GPUNodeState, NodeStateStatus, Plugin
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import DEPLOY, NodeLabel, PodLabel
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.api.pod import Pod, PodSpec
from gpu_control_plane.kube import ObjectMeta, OwnerReference
from gpu_control_plane.migration.deployment import Deployment
from gpu_control_plane.operator.migration.daemonset_changes import DaemonSetAction, DaemonSetChange, PodRestart
from gpu_control_plane.operator.migration.desired import desired_stack
from gpu_control_plane.operator.migration.installation import FullDaemonSet, Installation, ReleaseSettings
from gpu_control_plane.operator.migration.plan import MigrationPlan, plan_migration
from gpu_control_plane.operator.stack.defaults import with_api_defaults
from unit.api.nvidia.stock import stock_driver, stock_policy
from unit.operator.migration.test_plan import NVIDIA, OURS, manifest

CRD = {"driver": {"useNvidiaDriverCRD": True}}
HOME = "gpu-operator"
INSTALLED = ReleaseSettings(namespace=HOME, images={"DRIVER_MANAGER_IMAGE": "r/manager:1"})


def policy(changes: dict[str, dict[str, Any]] | None = None) -> StoredClusterPolicy:
    spec = stock_policy()["spec"]
    for section, fields in (changes or {}).items():
        spec[section] = {**spec[section], **fields}
    return StoredClusterPolicy(
        metadata=ObjectMeta(name="cluster-policy", uid="policy"), spec=msgspec.Raw(msgspec.json.encode(spec))
    )


def driver(name: str, **changes: Any) -> StoredNVIDIADriver:
    spec = {**stock_driver()["spec"], "default": False, **changes}
    return StoredNVIDIADriver(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}"), spec=msgspec.Raw(msgspec.json.encode(spec))
    )


def node(name: str, **labels: str) -> Node:
    facts: dict[str, str] = {"feature.node.kubernetes.io/pci-10de.present": "true", **labels}
    facts |= {NodeLabel.OS_ID: "ubuntu", NodeLabel.OS_VERSION: "24.04", NodeLabel.KERNEL: "6.8.0-60-generic"}
    return Node(metadata=ObjectMeta(name=name, labels=facts))


def found(**parts: Any) -> Installation:
    usual: dict[str, Any] = {
        "policies": (policy(),),
        "nodes": (node("a", pool="one"), node("b", pool="two")),
        "nvidia_holder": NVIDIA,
        "our_holder": OURS,
        "release": INSTALLED,
        "namespace": HOME,
    }
    return Installation(**usual | parts)


def planned(**parts: Any) -> MigrationPlan:
    there = found(**parts)
    return plan_migration(there, desired_stack(there))


def held(made: dict[str, Any], *, kind: str, uid: str, pods: int = 1) -> FullDaemonSet:
    """A DaemonSet as NVIDIA's operator left it: without our labels."""
    owner = OwnerReference(api_version="nvidia.com/v1", kind=kind, name=uid, uid=uid, controller=True)
    return FullDaemonSet(
        metadata=ObjectMeta(name=made["metadata"]["name"], namespace=HOME, owner_references=(owner,)),
        spec=with_api_defaults(made, {})["spec"],
        status={"desiredNumberScheduled": pods},
    )


def labelled(one: FullDaemonSet, state: str) -> FullDaemonSet:
    """The same, made by us for this state."""
    labels = {str(PodLabel.OPERAND): state}
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, labels=labels))


def drivers_of(plan: MigrationPlan) -> list[DaemonSetChange]:
    return [change for change in plan.daemonsets if change.owner.startswith("NVIDIADriver/")]


def label(plan: MigrationPlan, key: str) -> dict[str, str | None]:
    """What each node would have instead of what it has."""
    return {name: change.after for change in plan.labels if change.key == key for name in change.nodes}


def test_every_nvidiadriver_is_rendered_for_the_nodes_that_would_be_its_own() -> None:
    plan = planned(
        policies=(policy(CRD),),
        drivers=(driver("one", nodeSelector={"pool": "one"}), driver("rest", default=True, version="580.1")),
    )
    assert plan.problems == ()
    assert label(plan, NodeLabel.DRIVER_OWNER) == {"a": "one", "b": "rest"}
    assert {change.owner: (change.action, change.pods_after) for change in drivers_of(plan)} == {
        "NVIDIADriver/one": (DaemonSetAction.CREATED, 1),
        "NVIDIADriver/rest": (DaemonSetAction.CREATED, 1),
    }
    assert "nvidia-driver-daemonset" not in {change.name for change in plan.daemonsets}


def test_a_driver_that_is_there_is_kept_changed_or_replaced_by_its_own_upgrades() -> None:
    drivers = (driver("one", default=True), driver("two", nodeSelector={"pool": "two"}))
    wanted = desired_stack(found(policies=(policy(CRD),), drivers=drivers))
    assert wanted is not None
    assert wanted.drivers is not None
    made = {part.driver.name: [one for one in part.manifests if one["kind"] == "DaemonSet"] for part in wanted.drivers}
    same = tuple(held(one, kind="NVIDIADriver", uid=f"uid-{name}") for name in made for one in made[name])
    plan = planned(policies=(policy(CRD),), drivers=drivers, daemonsets=same)
    assert {change.action for change in drivers_of(plan)} == {DaemonSetAction.KEPT}
    other = (driver("one", default=True, version="600.1"), driver("two", nodeSelector={"pool": "two"}))
    by_hand = driver("two", nodeSelector={"pool": "two"}, version="600.1", upgradePolicy={"autoUpgrade": False})
    plan = planned(policies=(policy(CRD),), drivers=(other[0], by_hand), daemonsets=same)
    assert {change.owner: change.restart for change in drivers_of(plan)} == {
        "NVIDIADriver/one": PodRestart.UPGRADE,
        "NVIDIADriver/two": PodRestart.BY_HAND,
    }


def test_drivers_that_select_the_same_node_are_a_problem_and_stay_as_they_are() -> None:
    drivers = (driver("one"), driver("two"))
    there = held(manifest("theirs"), kind="NVIDIADriver", uid="uid-one")
    plan = planned(policies=(policy(CRD),), drivers=drivers, daemonsets=(there,))
    assert [problem.partition(":")[0] for problem in plan.problems] == ["NVIDIADrivers"]
    assert "select the same nodes" in plan.problems[0]
    assert [(change.name, change.action) for change in drivers_of(plan)] == [("theirs", DaemonSetAction.KEPT)]


def test_a_driver_that_cannot_be_rendered_is_a_problem() -> None:
    broken = driver("one", default=True, usePrecompiled=True, gds={"enabled": True, "image": "r/gds:1"})
    assert planned(policies=(policy(CRD),), drivers=(broken,)).problems[0].startswith("NVIDIADriver one: ")


def test_nvidiadrivers_that_the_policy_does_not_ask_for_leave_their_pods_to_the_upgrade() -> None:
    there = held(manifest("theirs"), kind="NVIDIADriver", uid="uid-one")
    plan = planned(drivers=(driver("one", default=True),), daemonsets=(there,))
    change = next(change for change in plan.daemonsets if change.name == "theirs")
    assert (change.action, change.restart) == (DaemonSetAction.REMOVED, PodRestart.UPGRADE)


@pytest.mark.parametrize(
    ("changes", "restart"),
    [
        (CRD, PodRestart.UPGRADE),
        ({"driver": {"enabled": False}}, PodRestart.GONE),
    ],
)
def test_pods_run_on_if_nvidiadrivers_take_over_and_not_if_drivers_are_off(
    changes: dict[str, dict[str, Any]], restart: PodRestart
) -> None:
    there = labelled(held(manifest("nvidia-driver-daemonset"), kind="ClusterPolicy", uid="policy"), "state-driver")
    plan = planned(policies=(policy(changes),), drivers=(driver("one", default=True),), daemonsets=(there,))
    change = next(change for change in plan.daemonsets if change.name == "nvidia-driver-daemonset")
    assert (change.action, change.restart) == (DaemonSetAction.REMOVED, restart)


@pytest.mark.parametrize(
    ("changes", "strategy", "pods", "harm"),
    [
        ({}, "OnDelete", 3, True),
        ({}, "OnDelete", 0, False),
        ({}, "RollingUpdate", 3, False),
        ({"driver": {"enabled": False}}, "OnDelete", 3, False),
    ],
)
def test_a_driver_that_would_be_unloaded_while_in_use_is_a_problem(
    changes: dict[str, dict[str, Any]], strategy: str, pods: int, harm: bool
) -> None:
    """One of NVIDIA's that this operator does not have."""
    odd = held(manifest("odd-driver", strategy=strategy), kind="ClusterPolicy", uid="policy", pods=pods)
    problems = planned(policies=(policy(changes),), daemonsets=(odd,)).problems
    assert any("would be unloaded on 3 nodes" in problem for problem in problems) is harm


@pytest.mark.parametrize(("pods", "action"), [(0, DaemonSetAction.REMOVED), (1, DaemonSetAction.KEPT)])
def test_a_variant_that_no_node_needs_goes_and_one_that_serves_a_node_stays(pods: int, action: DaemonSetAction) -> None:
    other = manifest("nvidia-driver-daemonset-old")
    other["spec"]["template"]["spec"]["nodeSelector"] = {str(NodeLabel.OS_VERSION): "22.04"}
    there = labelled(held(other, kind="ClusterPolicy", uid="policy", pods=pods), "state-driver")
    change = next(one for one in planned(daemonsets=(there,)).daemonsets if one.name == there.name)
    assert change.action is action


def test_without_a_policy_nvidiadrivers_still_count() -> None:
    owned = node("a", **{NodeLabel.PRESENT: "true", NodeLabel.DRIVER_OWNER: "one", f"{DEPLOY}driver": "true"})
    plan = planned(policies=(), drivers=(driver("one", default=True),), nodes=(owned,))
    assert plan.compared
    assert [(change.action, change.pods_after) for change in plan.daemonsets] == [(DaemonSetAction.CREATED, 1)]


def test_what_the_agent_does_itself_is_kept_away_from_its_node() -> None:
    served = GPUNodeState(metadata=ObjectMeta(name="a"), status=NodeStateStatus(plugin=Plugin(observed_generation=1)))
    without, with_agent = planned(), planned(states=(served,))
    key = f"{DEPLOY}device-plugin"
    assert label(without, key) == {"a": "true", "b": "true"}
    assert label(with_agent, key) == {"a": "agent", "b": "true"}
    after = {change.name: change.pods_after for change in with_agent.daemonsets}
    assert (after["nvidia-device-plugin-daemonset"], after["nvidia-dcgm-exporter"]) == (1, 2)


@pytest.mark.parametrize("pod", [False, True])
def test_a_driver_of_the_host_needs_no_pod_unless_a_driver_pod_has_brought_it(pod: bool) -> None:
    report = Driver(version="595.91.07", source=DriverSource.HOST)
    state = GPUNodeState(metadata=ObjectMeta(name="a"), status=NodeStateStatus(driver=report))
    brought = Pod(metadata=ObjectMeta(name="d", labels={"app": "nvidia-driver-daemonset"}), spec=PodSpec(node_name="a"))
    plan = planned(states=(state,), driver_pods=(brought,) if pod else ())
    assert label(plan, f"{DEPLOY}driver")["a"] == ("true" if pod else "pre-installed")


def test_a_state_that_cannot_be_rendered_with_our_images_is_a_problem() -> None:
    nvidias = Deployment(
        metadata=ObjectMeta(name="gpu-operator", namespace=HOME),
        spec={"template": {"spec": {"containers": [{"env": [{"name": "DRIVER_IMAGE", "value": "r/driver:1"}]}]}}},
    )
    bare = policy({"driver": dict.fromkeys(("repository", "image", "version"), "")})
    plan = planned(policies=(bare,), deployments=(nvidias,))
    assert plan.problems[0].startswith("state-driver: ")
    assert planned(policies=(bare,), deployments=(nvidias,), release=None).problems == ()


@pytest.mark.parametrize(
    ("release", "problem"),
    [
        (INSTALLED, ""),
        (ReleaseSettings(namespace="d8-gpu-operator"), "Set operator.namespace=gpu-operator"),
        (ReleaseSettings(operator=False), "operator.enabled=false"),
        (None, ""),
    ],
)
def test_a_release_of_ours_that_would_do_harm_is_a_problem(release: ReleaseSettings | None, problem: str) -> None:
    there = held(manifest("a"), kind="ClusterPolicy", uid="policy")
    problems = planned(release=release, daemonsets=(there,)).problems
    assert any(problem in one for one in problems) if problem else problems == ()
