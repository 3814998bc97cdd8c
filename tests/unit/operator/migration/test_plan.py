"""What a take-over would change, decided on what was found and nothing else."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube import ObjectMeta, OwnerReference
from gpu_control_plane.kube.lease_watch import LeaseHolder
from gpu_control_plane.migration.deployment import Deployment
from gpu_control_plane.operator.cluster_policy import parse_active_policy
from gpu_control_plane.operator.gpu_cluster import GPUCluster
from gpu_control_plane.operator.migration.daemonset_changes import DaemonSetAction, PodRestart
from gpu_control_plane.operator.migration.desired import DesiredStack, desired_stack
from gpu_control_plane.operator.migration.differences import differences
from gpu_control_plane.operator.migration.installation import FullDaemonSet, Installation, ReleaseSettings
from gpu_control_plane.operator.migration.label_changes import relabel
from gpu_control_plane.operator.migration.plan import MigrationPlan, plan_migration
from gpu_control_plane.operator.migration.values import translate
from gpu_control_plane.operator.stack.defaults import with_api_defaults
from gpu_control_plane.operator.stack.render import RenderedState

NOW = datetime(2026, 11, 15, tzinfo=UTC)
NVIDIA = LeaseHolder("gpu-operator", "gpu-operator-1_a", NOW + timedelta(minutes=1))
OURS = LeaseHolder("d8-gpu-operator", "controller-1", NOW + timedelta(minutes=1))


def policy(values: dict[str, Any] | None = None, name: str = "cluster-policy", age: int = 0) -> StoredClusterPolicy:
    spec = translate(values or {}).values["clusterPolicy"]["spec"]
    return StoredClusterPolicy(
        metadata=ObjectMeta(name=name, uid="ClusterPolicy", creation_timestamp=NOW - timedelta(days=age)),
        spec=msgspec.Raw(msgspec.json.encode(spec)),
    )


def manifest(name: str, image: str = "r/x:1", strategy: str = "RollingUpdate") -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "updateStrategy": {"type": strategy},
            "template": {"spec": {"containers": [{"name": "main", "image": image}]}},
        },
    }


def daemonset(
    name: str, image: str = "r/x:1", strategy: str = "RollingUpdate", owner: str = "ClusterPolicy"
) -> FullDaemonSet:
    reference = OwnerReference(api_version="nvidia.com/v1", kind=owner, name="x", uid=owner, controller=True)
    spec = with_api_defaults(manifest(name, image, strategy), {})["spec"]
    return FullDaemonSet(
        metadata=ObjectMeta(name=name, owner_references=(reference,) if owner else ()),
        spec=spec,
        status={"desiredNumberScheduled": 4},
    )


def gpu_node(name: str, **labels: str) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, labels={"feature.node.kubernetes.io/pci-10de.present": "true", **labels})
    )


def planned(wanted: list[dict[str, Any]] | None = None, **found: Any) -> MigrationPlan:
    """The plan where these manifests, of one state, are wanted; without a list, those that would really be."""
    usual: dict[str, Any] = {
        "policies": (policy(),),
        "nvidia_holder": NVIDIA,
        "our_holder": OURS,
        "namespace": "d8-gpu-operator",
    }
    there = Installation(**usual | found)
    active = parse_active_policy(there.policies)
    if wanted is None or active is None or active.spec is None:
        return plan_migration(there, desired_stack(there))
    state = RenderedState(state="state-dcgm", enabled=True, manifests=tuple(wanted))
    return plan_migration(
        there, DesiredStack(policy=active.spec, states=(state,), nodes=relabel(there, active.spec).nodes)
    )


@pytest.mark.parametrize(
    ("existing", "wanted", "action", "restart"),
    [
        (None, manifest("a"), DaemonSetAction.CREATED, PodRestart.NONE),
        (daemonset("a"), manifest("a"), DaemonSetAction.KEPT, PodRestart.NONE),
        (daemonset("a"), manifest("a", image="r/x:2"), DaemonSetAction.CHANGED, PodRestart.ROLLING),
        (daemonset("a", strategy="OnDelete"), manifest("a"), DaemonSetAction.CHANGED, PodRestart.NONE),
        (
            daemonset("a", strategy="OnDelete"),
            manifest("a", image="r/x:2", strategy="OnDelete"),
            DaemonSetAction.CHANGED,
            PodRestart.UPGRADE,
        ),
        (daemonset("a"), None, DaemonSetAction.REMOVED, PodRestart.GONE),
        (daemonset("a", owner="NVIDIADriver"), None, DaemonSetAction.REMOVED, PodRestart.UPGRADE),
    ],
)
def test_a_daemonset_is_made_changed_kept_or_removed(
    existing: FullDaemonSet | None, wanted: dict[str, Any] | None, action: DaemonSetAction, restart: PodRestart
) -> None:
    plan = planned([wanted] if wanted else [], daemonsets=(existing,) if existing else ())
    assert [(change.name, change.action, change.restart) for change in plan.daemonsets] == [("a", action, restart)]


def test_a_daemonset_of_another_owner_is_ignored() -> None:
    assert planned([], daemonsets=(daemonset("a", owner=""), daemonset("b", owner="Deployment"))).daemonsets == ()


def test_a_driver_restarts_only_by_hand_where_upgrades_are_off() -> None:
    off = policy({"driver": {"upgradePolicy": {"autoUpgrade": False}}})
    wanted, held = [manifest("a", "r/x:2", "OnDelete")], (daemonset("a", strategy="OnDelete"),)
    by_hand = planned(wanted, daemonsets=held, policies=(off,))
    assert by_hand.daemonsets[0].restart is PodRestart.BY_HAND
    assert not any("autoUpgrade" in step for step in by_hand.todo)
    assert any("autoUpgrade" in step for step in planned(wanted, daemonsets=held).todo)


@pytest.mark.parametrize(
    ("strategy", "restart"), [("OnDelete", PodRestart.UPGRADE), ("RollingUpdate", PodRestart.AT_ONCE)]
)
def test_a_selector_cannot_change_so_the_daemonset_is_made_anew(strategy: str, restart: PodRestart) -> None:
    wanted = manifest("a", image="r/x:2", strategy=strategy)
    wanted["spec"]["selector"] = {"matchLabels": {"app": "b"}}
    change = planned([wanted], daemonsets=(daemonset("a", strategy=strategy),)).daemonsets[0]
    assert (change.action, change.restart) == (DaemonSetAction.RECREATED, restart)
    assert "spec.selector.matchLabels.app" in change.differences


def test_on_openshift_the_plan_says_that_it_does_not_know_all() -> None:
    assert "OpenShift" in planned([], nodes=(gpu_node("a", **{"node.openshift.io/os_id": "rhcos"}),)).remarks[0]


def test_fields_that_change_nothing_are_named_with_their_object() -> None:
    spec = msgspec.json.decode(policy().spec)
    spec["driver"]["useOpenKernelModules"] = True
    spec["driver"]["colour"] = "green"
    odd = StoredClusterPolicy(metadata=ObjectMeta(name="p"), spec=msgspec.Raw(msgspec.json.encode(spec)))
    assert [(note.object, note.path, note.verdict) for note in planned([], policies=(odd,)).fields] == [
        ("ClusterPolicy/p", "driver.colour", "unknown"),
        ("ClusterPolicy/p", "driver.useOpenKernelModules", "without effect"),
    ]


def test_a_label_change_of_several_nodes_is_listed_once() -> None:
    plan = planned(nodes=(gpu_node("b"), gpu_node("a"), Node(metadata=ObjectMeta(name="plain"))))
    present = next(change for change in plan.labels if change.key == NodeLabel.PRESENT)
    assert (present.before, present.after, present.nodes) == (None, "true", ("a", "b"))
    assert all("plain" not in change.nodes for change in plan.labels)


def test_the_oldest_policy_is_the_active_one() -> None:
    assert planned([], policies=(policy(name="a", age=1), policy(name="b", age=5))).policy == "b"


def test_a_policy_that_cannot_be_read_is_a_problem_and_no_crash() -> None:
    bad = StoredClusterPolicy(metadata=ObjectMeta(name="bad"), spec=msgspec.Raw(b'{"driver": 5}'))
    plan = planned(None, policies=(bad,), nodes=(gpu_node("a"),))
    assert not plan.compared
    assert plan.problems[0].startswith("ClusterPolicy bad cannot be read: ")
    assert (plan.labels, plan.fields) == ((), ())


def test_a_policy_that_contradicts_itself_is_a_problem() -> None:
    torn = policy({"cdi": {"enabled": False, "nriPluginEnabled": True}})
    assert (
        planned([], policies=(torn,)).problems[0].startswith("ClusterPolicy cluster-policy: cdi.nriPluginEnabled needs")
    )


def test_a_gpu_cluster_beside_a_policy_is_a_problem() -> None:
    cluster = GPUCluster(metadata=ObjectMeta(name="gpu-cluster"))
    assert [problem[:24] for problem in planned([], gpu_clusters=(cluster,)).problems] == ["GPUCluster gpu-cluster h"]


def test_a_second_set_of_operands_is_a_problem_whoever_keeps_it() -> None:
    def second(name: str, owner: str) -> FullDaemonSet:
        made = daemonset(name, owner=owner)
        return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, namespace="other"))

    others = (second("nvidia-driver-daemonset", "ClusterPolicy"), second("nvidia-device-plugin-daemonset", ""))
    problems = planned([], elsewhere=others).problems
    assert len(problems) == 1
    assert problems[0].startswith(
        "There are more operands in other: nvidia-device-plugin-daemonset, nvidia-driver-daemonset. Each node would"
    )


@pytest.mark.parametrize(
    ("release", "in_the_way"),
    [
        (None, False),
        (ReleaseSettings(), True),
        (ReleaseSettings(nvidia_namespaces=("infra",)), False),
        (ReleaseSettings(namespace="infra"), False),
    ],
)
def test_an_operator_whose_lease_would_not_be_believed_is_a_problem(
    release: ReleaseSettings | None, in_the_way: bool
) -> None:
    holder = msgspec.structs.replace(NVIDIA, namespace="infra")
    problems = planned([], nvidia_holder=holder, release=release, namespace="d8-gpu-operator").problems
    assert any("controller.nvidiaNamespaces={infra}" in problem for problem in problems) is in_the_way


@pytest.mark.parametrize(
    ("found", "begins"),
    [
        ({"our_holder": None}, "Install this operator, best where the operands are: helm install -n d8-gpu-operator,"),
        (
            {"our_holder": None, "namespace": "gpu-operator", "daemonsets": (daemonset("a"),)},
            "Install this operator, best where the operands are: helm install -n gpu-operator,",
        ),
        ({"our_holder": None, "release": ReleaseSettings()}, "This operator is installed, but does not run"),
        ({"policies": ()}, "There is no ClusterPolicy"),
        ({"namespace": "gpu-operator", "daemonsets": (daemonset("a"),)}, "Set operator.namespace=gpu-operator"),
        ({"namespace": "gpu-operator"}, None),
        ({"namespace": "gpu-operator", "own_namespace": "gpu-operator", "daemonsets": (daemonset("a"),)}, None),
        ({"nodes": (gpu_node("a", **{NodeLabel.UPGRADE_STATE: "drain-required"}),)}, "Wait for the driver upgrade"),
        ({}, None),
        ({"nodes": (gpu_node("a", **{NodeLabel.UPGRADE_STATE: "upgrade-done"}),)}, None),
    ],
)
def test_what_has_to_be_done_first(found: dict[str, Any], begins: str | None) -> None:
    todo = planned([], **found).todo
    assert len(todo) == (1 if begins else 0)
    assert not begins or todo[0].startswith(begins)


def test_images_in_the_environment_of_the_other_operator_have_to_come_along() -> None:
    variables = [{"name": "DRIVER_IMAGE", "value": "r/d:1"}, {"name": "WATCH_NAMESPACE", "value": ""}]
    operator = Deployment(
        metadata=ObjectMeta(name="gpu-operator", namespace="gpu-operator"),
        spec={"replicas": 1, "template": {"spec": {"containers": [{"env": variables}]}}},
    )
    plan = planned([], deployments=(operator,))
    assert plan.operators[0].images == {"DRIVER_IMAGE": "r/d:1"}
    assert any("DRIVER_IMAGE" in step for step in plan.todo)
    settled = planned([], deployments=(operator,), release=ReleaseSettings(images={"DRIVER_IMAGE": "r/d:2"}))
    assert settled.todo == ()


@pytest.mark.parametrize(
    ("desired", "existing", "paths"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b"]),
        ({"a": ""}, {}, []),
        ({"a": [1, 2]}, {"a": [1]}, ["a"]),
        ({"env": [{"name": "X", "value": "1"}]}, {"env": [{"name": "X", "value": "2"}]}, ["env[X].value"]),
        (
            {"env": [{"name": "X", "value": "1"}]},
            {"env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]},
            ["env[Y]"],
        ),
        ({"env": [{"name": "X"}]}, {}, ["env[X].name"]),
    ],
)
def test_only_what_would_really_change_is_a_difference(desired: Any, existing: Any, paths: list[str]) -> None:
    assert list(differences(desired, existing)) == paths


def test_a_plan_is_json_for_machines() -> None:
    plan = msgspec.json.decode(msgspec.json.encode(planned([manifest("a")])))
    assert plan["daemonsets"] == [
        {
            "name": "a",
            "action": "created",
            "owner": "ClusterPolicy/cluster-policy",
            "restart": "none",
            "pods": 0,
            "podsAfter": 0,
            "differences": [],
        }
    ]
