"""Every check finds the fault that it is for, and none finds anything in a healthy cluster."""

import re
from typing import Any

import msgspec
import pytest

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.doctor.checks import CHECKS
from gpu_control_plane.doctor.examination import Examination, examine
from gpu_control_plane.doctor.findings import MendKind
from gpu_control_plane.doctor.snapshot import Snapshot, Source
from unit.doctor.clusters import (
    CARD,
    INDEX_KEY,
    NODE,
    POOL,
    RESOURCE,
    Cluster,
    Item,
    Spoil,
    added,
    ago,
    asking,
    changed,
    condition,
    healthy,
    meta,
    pod,
    removed,
    says,
    snapshot,
)

MIG_ORDER = {
    "inventoryID": CARD,
    "pool": POOL,
    "resources": [{"name": RESOURCE, "units": 7}],
    "allocation": {"mode": "MIG", "mig": {"profile": "1g.18gb"}},
}
PROBLEM = {"inventoryID": CARD, "reason": "Failed", "message": "the driver refused"}
CRASHING = {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}
NOT_READY = {
    "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": ago(minutes=5)}],
    "containerStatuses": [CRASHING],
}


def without_controller(cluster: Cluster) -> None:
    cluster[Source.DEPLOYMENTS].clear()
    cluster[Source.LEASES].clear()


def empty(cluster: Cluster) -> None:
    cluster[Source.STATES].clear()
    cluster[Source.NODES][0]["metadata"]["labels"] = {}


def without_bundle(cluster: Cluster) -> None:
    cluster[Source.WEBHOOKS][0]["webhooks"][0]["clientConfig"]["caBundle"] = ""


def problem_with(order: dict[str, Any] | None = None) -> Spoil:
    def spoil(cluster: Cluster) -> None:
        state = cluster[Source.STATES][0]
        state["status"]["plugin"]["problems"] = [PROBLEM]
        if order is not None:
            state["spec"]["assignments"] = [order]

    return spoil


def refused_agent(note: str) -> Spoil:
    """The API server does not let the DaemonSet create agents."""

    def spoil(cluster: Cluster) -> None:
        removed(Source.PODS, 1)(cluster)
        name = "gpu-control-plane-agent"
        about = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "namespace": NAMESPACE}
        event = {"metadata": meta("agent.1", NAMESPACE), "regarding": about, "reason": "FailedCreate"}
        cluster[Source.REFUSALS].append({**event, "note": f"Error creating: {note}", "eventTime": ago(minutes=3)})

    return spoil


def pending(reason: str, **metadata: Any) -> Spoil:
    status = {"state": "Unassigned", "poolRef": None, "pendingReason": reason}
    return changed(Source.CARDS, {"metadata": {"creationTimestamp": ago(days=3), **metadata}, "status": status})


def node_says(kind: str, status: str, reason: str, message: str = "Do `kubectl describe node h200-1`.") -> Spoil:
    return says(Source.STATES, condition(kind, status, reason, message))


def pool_says(kind: str, status: str, reason: str) -> Spoil:
    return says(Source.POOLS, condition(kind, status, reason, "what is wrong"))


def quota(units: int) -> dict[str, Any]:
    return {"spec": {"quotas": [{"namespace": "team-a", "units": units}]}}


LEASE = {
    "metadata": meta("53822513.nvidia.com", "gpu-operator"),
    "spec": {"holderIdentity": "nvidia-0", "leaseDurationSeconds": 60, "renewTime": ago(seconds=10)},
}
REFUSAL: dict[str, Any] = {
    "metadata": meta("train.1", "team-a"),
    "regarding": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train", "namespace": "team-a"},
    "reason": "FailedCreate",
    "note": 'pods "x" is forbidden: exceeded quota: gpu-pool-training, requested: requests.gpu.deckhouse.io/training=1',
    "eventTime": ago(minutes=3),
}
NOT_READY_STATE = {"name": "state-driver", "state": "notReady", "desired": 3, "ready": 1, "message": "pods crash"}
PAUSED = {
    "metadata": meta("cluster-policy"),
    "spec": {"driver": {"upgradePolicy": {"autoUpgrade": True, "paused": True}}},
    "status": {"state": "ready", "upgrade": {"total": 4, "pending": 2}},
}

KUBERAY_LEASE = {
    "metadata": meta("ray-operator-leader", "default"),
    "spec": {"holderIdentity": "kuberay-operator-1_2", "leaseDurationSeconds": 15, "renewTime": ago(seconds=5)},
}


def beside_kuberay(*, believed: bool) -> Spoil:
    def spoil(cluster: Cluster) -> None:
        added(Source.KUBERAY_LEASES, KUBERAY_LEASE)(cluster)
        if believed:
            said = {"conditions": [condition("OtherOperatorActive")]}
            changed(Source.RAY_CLUSTERS, {"status": said})(cluster)

    return spoil


CASES: dict[str, list[Spoil]] = {
    "ray-two-operators": [beside_kuberay(believed=False)],
    "ray-kuberay-active": [beside_kuberay(believed=True)],
    "ray-crd-incomplete": [
        changed(Source.RAY_CRDS, {"spec": {"versions": [{"name": "v1alpha1", "served": True}]}}),
        changed(Source.RAY_CRDS, {"spec": {"versions": [{"name": "v1", "served": False}]}}),
    ],
    "ray-never-served": [
        changed(Source.RAY_CLUSTERS, {"status": {"conditions": [condition("CapacitySufficient", "False")]}}),
        changed(Source.RAY_CLUSTERS, {"status": {"conditions": [condition("Valid", "False", message="no head")]}}),
    ],
    "ray-job-waits": [
        changed(Source.RAY_JOBS, {"status": {"jobDeploymentStatus": "Initializing", "startTime": ago(minutes=11)}})
    ],
    "ray-dashboard-silent": [changed(Source.RAY_JOBS, {"status": {"jobStatusCheckFailureStartTime": ago(minutes=1)}})],
    "ray-service-not-ready": [
        changed(Source.RAY_SERVICES, {"status": {"conditions": [condition("Ready", "False", "ZeroServeEndpoints")]}})
    ],
    "crd-missing": [removed(Source.CRDS), says(Source.CRDS, condition("Established", "False"))],
    "crd-version": [changed(Source.CRDS, {"metadata": {"annotations": {"gpu.deckhouse.io/crd-version": "0.0.9"}}})],
    "controller-missing": [without_controller],
    "controller-unavailable": [changed(Source.DEPLOYMENTS, {"status": {"availableReplicas": 1}})],
    "controller-no-leader": [
        removed(Source.LEASES),
        changed(Source.LEASES, {"spec": {"renewTime": ago(minutes=2)}}),
        changed(Source.LEASES, {"spec": {"holderIdentity": ""}}),
    ],
    "webhook-missing": [removed(Source.WEBHOOKS)],
    "webhook-untrusted": [without_bundle],
    "webhook-unreachable": [
        removed(Source.ENDPOINTS),
        changed(Source.ENDPOINTS, {"endpoints": [{"conditions": {"ready": False}}]}),
    ],
    "policy-missing": [removed(Source.POLICIES), removed(Source.BINDINGS)],
    "policy-not-enforced": [changed(Source.BINDINGS, {"spec": {"validationActions": ["Audit"]}})],
    "access-index-missing": [removed(Source.INDEX)],
    "access-index-stale": [
        changed(Source.INDEX, {"data": {INDEX_KEY: "pool training\n\n"}}),
        changed(Source.INDEX, {"data": {INDEX_KEY: "pool other\nselector Every\n\n"}}),
    ],
    "program-not-running": [added(Source.PODS, pod("validator-0", NAMESPACE, "validator", **NOT_READY))],
    "no-gpu-node": [empty],
    "agent-missing": [removed(Source.PODS, 1)],
    "agent-refused": [
        refused_agent('pods "gpu-control-plane-agent-" is forbidden: violates PodSecurity "restricted:latest": host'),
        refused_agent("insufficient quota to match these scopes: [{PriorityClass In [system-node-critical]}]"),
    ],
    "agent-not-ready": [changed(Source.PODS, {"status": NOT_READY}, 1)],
    "node-unlabelled": [changed(Source.NODES, {"metadata": {"labels": {"gpu.deckhouse.io/gpu.present": "no"}}})],
    "node-vanished": [node_says("Vanished", "True", "NodeGone")],
    "inventory-incomplete": [node_says("InventoryComplete", "False", "CardsMissing")],
    "driver-missing": [node_says("DriverMissing", "True", "DriverNotFound")],
    "toolkit-missing": [node_says("ToolkitMissing", "True", "ToolkitNotFound")],
    "monitoring-missing": [node_says("MonitoringMissing", "True", "MonitoringNotFound")],
    "labels-stale": [node_says("GFDReady", "False", "FeatureLabelsStale")],
    "agent-lost": [node_says("Degraded", "True", "AgentNotReady")],
    "conflicting-plugin": [node_says("Degraded", "True", "ConflictingDevicePlugin")],
    "driver-hung": [node_says("Degraded", "True", "DriverHung")],
    "agent-paused": [node_says("Degraded", "True", "DriverReleased")],
    "node-degraded": [node_says("Degraded", "True", "DuplicateSource")],
    "checks-pending": [node_says("ReadyForPooling", "False", "ChecksPending")],
    "nouveau-loaded": [changed(Source.NODES, {"metadata": {"labels": {"gpu.deckhouse.io/driver.name": "nouveau"}}})],
    "validation-failed": [
        changed(Source.STATES, {"status": {"validation": {"steps": [{"name": "cuda", "result": "Failed"}]}}})
    ],
    "report-not-read": [changed(Source.REPORTS, {"metadata": {"generation": 4}})],
    "order-not-answered": [changed(Source.STATES, {"metadata": {"generation": 5}})],
    "order-refused": [problem_with()],
    "mig-not-as-ordered": [problem_with(MIG_ORDER)],
    "resource-not-listed": [changed(Source.NODES, {"status": {"capacity": {RESOURCE: "0"}}})],
    "node-unusable": [
        changed(Source.NODES, {"spec": {"unschedulable": True}}),
        changed(Source.NODES, {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
    ],
    "nvidia-operator-active": [added(Source.NVIDIA_LEASES, LEASE)],
    "card-faulted": [says(Source.CARDS, condition("Healthy", "False", "XID", "XID 79"))],
    "burn-in-failed": [says(Source.CARDS, condition("BurnedIn", "False", "MemoryErrors", "3 errors"))],
    "request-not-followed": [changed(Source.CARDS, {"status": {"message": "approved for trainnig, but no such pool"}})],
    "card-ignored-in-use": [
        changed(
            Source.CARDS,
            {
                "metadata": {"labels": {"gpu.deckhouse.io/ignore": "true"}},
                "status": {
                    "usedBy": [
                        {"namespace": "team-a", "pod": "t", "container": "main", "resource": RESOURCE, "units": 1}
                    ]
                },
            },
        )
    ],
    "card-held": [pending("Held", annotations={"gpu.deckhouse.io/hold": "spare"})],
    "card-awaits-approval": [pending("AwaitingApproval")],
    "card-without-pool": [pending("NoPool")],
    "card-not-probed": [changed(Source.CARDS, {"status": {"state": "Unassigned", "conditions": []}})],
    "reservation-not-ended": [
        changed(
            Source.CARDS,
            {"status": {"reservation": {"token": "t", "holder": "team-a/train", "expiresAt": ago(minutes=5)}}},
        )
    ],
    "pool-misconfigured": [pool_says("Configured", "False", "LayoutMismatch")],
    "pool-name-collision": [pool_says("Configured", "False", "NameCollision")],
    "pool-nobody-admitted": [pool_says("Accessible", "False", "NobodyAdmitted")],
    "pool-unguarded": [pool_says("Guarded", "False", "PolicyMissing")],
    "pool-quota-not-kept": [
        pool_says("QuotasHold", "False", "QuotaNotWritten"),
        pool_says("QuotasHold", "True", "OverQuota"),
    ],
    "pool-quota-without-namespace": [pool_says("QuotasHold", "True", "NamespaceNotFound")],
    "pool-maintenance-overdue": [pool_says("InMaintenance", "True", "MaintenanceOverdue")],
    "pool-not-offered": [pool_says("Ready", "False", "NotOffered")],
    "pool-selects-nothing": [changed(Source.POOLS, {"status": {"cards": {"selected": 0}}})],
    "pool-quota-too-high": [changed(Source.POOLS, quota(2))],
    "pool-not-observed": [changed(Source.POOLS, {"metadata": {"generation": 2}})],
    "pool-not-deleted": [changed(Source.POOLS, {"metadata": {"deletionTimestamp": ago(hours=2)}})],
    "pod-unknown-resource": [added(Source.WAITING, asking("lost", "gpu.deckhouse.io/gone"))],
    "pod-waiting": [added(Source.WAITING, asking("train"))],
    "pod-admission-error": [
        added(
            Source.FAILED,
            {**asking("gone"), "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no"}},
        )
    ],
    "pod-refused": [added(Source.REFUSALS, REFUSAL)],
    "stack-not-ready": [
        changed(Source.CLUSTER_POLICIES, {"status": {"state": "notReady", "states": [NOT_READY_STATE]}}),
        changed(Source.CLUSTER_POLICIES, {"status": {"state": "notReady"}}),
    ],
    "driver-not-ready": [
        added(Source.DRIVERS, {"metadata": meta("default"), "spec": {}, "status": {"state": "notReady"}})
    ],
    "cluster-policy-ignored": [
        added(Source.CLUSTER_POLICIES, {"metadata": meta("second"), "spec": {}, "status": {"state": "ignored"}})
    ],
    "stack-unknown-fields": [says(Source.CLUSTER_POLICIES, condition("UnknownFields", "True", "Present", "driver.x"))],
    "driver-upgrade-failed": [
        changed(Source.NODES, {"metadata": {"labels": {"nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"}}})
    ],
    "driver-upgrade-paused": [changed(Source.CLUSTER_POLICIES, PAUSED)],
    "node-upgrade-skipped": [
        changed(
            Source.NODES,
            {
                "metadata": {
                    "labels": {
                        "nvidia.com/gpu-driver-upgrade-state": "upgrade-required",
                        "nvidia.com/gpu-driver-upgrade.skip": "true",
                    }
                }
            },
        )
    ],
    "runtime-class-missing": [removed(Source.RUNTIME_CLASSES)],
}


def examined(*spoils: Spoil) -> Examination:
    cluster = healthy()
    for spoil in spoils:
        spoil(cluster)
    return examine(snapshot(cluster))


def test_a_healthy_cluster_has_no_findings() -> None:
    found = examined()
    assert (found.findings, found.not_made, found.made) == ((), (), len(CHECKS))


@pytest.mark.parametrize(
    ("check", "spoil"),
    [
        pytest.param(check, spoil, id=f"{check}-{number}")
        for check, spoils in CASES.items()
        for number, spoil in enumerate(spoils)
    ],
)
def test_a_fault_is_found_with_its_evidence_and_a_command(check: str, spoil: Spoil) -> None:
    found = [finding for finding in examined(spoil).findings if finding.check == check]
    assert len(found) == 1
    finding = found[0]
    assert finding.sentence
    assert re.match(r"\w+/\S", finding.evidence.object)
    assert finding.fix.split()[0] in {"kubectl", "helm", "python"}


@pytest.mark.parametrize("name", ["train; reboot", "$(reboot)", "train\x1b[2J", ""])
def test_an_event_about_what_cannot_exist_is_not_believed(name: str) -> None:
    forged = {**REFUSAL, "regarding": {**REFUSAL["regarding"], "name": name}}
    assert examined(added(Source.REFUSALS, forged)).findings == ()


MANAGED = {"key": "team/gpus", "operator": "In", "values": ["true"]}
ONLY_MANAGED = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [MANAGED]}],
        }
    }
}
TAINT = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("placement", "node", "missing"),
    [
        ({"affinity": ONLY_MANAGED}, {}, False),
        ({"affinity": ONLY_MANAGED}, {"metadata": {"labels": {"team/gpus": "true"}}}, True),
        ({"nodeSelector": {"pool": "gpu"}}, {}, False),
        ({"nodeSelector": {"pool": "gpu"}}, {"metadata": {"labels": {"pool": "gpu"}}}, True),
        ({}, {"spec": {"taints": [TAINT]}}, False),
        ({"tolerations": [{"operator": "Exists"}]}, {"spec": {"taints": [TAINT]}}, True),
        ({}, {"spec": {"taints": [{"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}]}}, True),
    ],
)
def test_an_agent_is_missed_where_its_daemonset_would_place_it(placement: Item, node: Item, missing: bool) -> None:
    """Whichever label the values name, and whether or not nodes are managed without it."""
    template = changed(Source.DAEMONSETS, {"spec": {"template": {"spec": placement}}})
    spoilt = examined(template, changed(Source.NODES, node), removed(Source.PODS, 1), removed(Source.STATES))
    assert ("agent-missing" in {finding.check for finding in spoilt.findings}) is missing


def test_refusals_of_agents_do_not_count_once_they_are_there() -> None:
    cluster = healthy()
    agent = cluster[Source.PODS][1]
    refused_agent("violates PodSecurity")(cluster)
    cluster[Source.PODS].append(agent)
    assert examine(snapshot(cluster)).findings == ()


def test_every_check_has_a_case() -> None:
    assert set(CASES) == {check.id for check in CHECKS}
    assert len(CHECKS) >= 25


class _Watched:
    """A snapshot that fails a check which looks at something that it does not say it needs."""

    def __init__(self, held: Snapshot, allowed: set[str]) -> None:
        self._held, self._allowed = held, allowed

    def __getattr__(self, name: str) -> Any:
        assert name in self._allowed, f"looks at {name}"
        return getattr(self._held, name)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_check_looks_only_at_what_it_says_it_needs(check: Any) -> None:
    for spoil in CASES[check.id]:
        cluster = healthy()
        spoil(cluster)
        watched = _Watched(snapshot(cluster), {*check.needs, "now", "namespace", "release", "before"})
        assert check.findings(watched)


@pytest.mark.parametrize("source", Source)
def test_what_could_not_be_read_is_never_fine(source: Source) -> None:
    held = msgspec.structs.replace(snapshot(healthy()), unread={source: "you may not read them"})
    blank = msgspec.structs.replace(held, **{source: ()})
    found = examine(blank)
    concerned = {check.id for check in CHECKS if source in check.needs}
    assert {each.check for each in found.not_made} == concerned
    assert concerned
    assert found.findings == ()
    assert found.made == len(CHECKS) - len(concerned)


def test_a_lease_that_moved_on_between_two_looks_is_held_whatever_the_clock_says() -> None:
    cluster = healthy()
    cluster[Source.LEASES][0]["spec"]["renewTime"] = ago(minutes=10)
    first = snapshot(cluster)
    cluster[Source.LEASES][0]["spec"]["renewTime"] = ago(minutes=9)
    second = msgspec.structs.replace(snapshot(cluster), before=first)
    assert "controller-no-leader" in {finding.check for finding in examine(first).findings}
    assert "controller-no-leader" not in {finding.check for finding in examine(second).findings}


def test_a_controller_outside_the_cluster_is_not_missed() -> None:
    assert examined(removed(Source.DEPLOYMENTS)).findings == ()


def test_switched_off_webhooks_are_not_missed() -> None:
    def off(cluster: Cluster) -> None:
        cluster[Source.WEBHOOKS].clear()
        cluster[Source.ENDPOINTS].clear()

    assert examined(off).findings == ()


def test_pods_that_wait_for_one_reason_are_one_finding_with_the_longest() -> None:
    older = asking("older", creationTimestamp=ago(hours=30))
    found = examined(added(Source.WAITING, asking("younger")), added(Source.WAITING, older))
    assert [finding.about for finding in found.findings] == ["pod team-a/older"]
    assert "30 h" in found.findings[0].sentence
    assert "1 more pod" in found.findings[0].sentence


def test_only_a_failed_pod_that_was_replaced_is_deleted_by_itself() -> None:
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train", "uid": "u", "controller": True}]
    failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    found = examined(
        added(Source.FAILED, {**asking("owned", ownerReferences=owner), "status": failed}),
        added(Source.FAILED, {**asking("alone"), "status": failed}),
    )
    mends = {finding.about: finding.mend for finding in found.findings}
    assert mends["pod team-a/alone"] is None
    owned = mends["pod team-a/owned"]
    assert owned is not None
    assert (owned.kind, owned.uid) == (MendKind.DELETE_FAILED_POD, "uid-owned")


def test_a_policy_of_a_chart_is_left_to_the_chart() -> None:
    def by_chart(cluster: Cluster) -> None:
        for each in cluster[Source.POLICIES]:
            labels = {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "gpu"}
            each["metadata"]["labels"] = labels
        del cluster[Source.POLICIES][0]

    (finding,) = (each for each in examined(by_chart).findings if each.check == "policy-missing")
    assert finding.mend is None
    assert finding.fix.startswith(f"helm upgrade gpu CHART -n {NAMESPACE} --reset-then-reuse-values")


def test_an_upgrade_is_named_by_the_release_of_the_objects() -> None:
    """A release has any name, and a value that the new chart has, and the old one had not, is not lost."""
    refused = refused_agent("insufficient quota to match these scopes: [{PriorityClass In [system-node-critical]}]")
    labelled = changed(Source.DAEMONSETS, {"metadata": {"labels": {"app.kubernetes.io/instance": "cards"}}})
    (finding,) = (each for each in examined(refused, labelled).findings if each.check == "agent-refused")
    assert "helm upgrade cards CHART" in finding.fix
    assert "--reset-then-reuse-values --set priorityClasses.create=true" in finding.fix


def test_the_command_of_a_message_is_the_fix() -> None:
    (finding,) = examined(node_says("DriverMissing", "True", "DriverNotFound", "No driver: `kubectl logs x`.")).findings
    assert finding.fix == "kubectl logs x"
    assert finding.evidence.object == f"GPUNodeState/{NODE}"


def test_a_job_that_ray_has_lost_is_no_fault_of_its_dashboard() -> None:
    lost = {"reason": "JobLost", "jobStatusCheckFailureStartTime": ago(minutes=1)}
    assert examined(changed(Source.RAY_JOBS, {"status": lost})).findings == ()


def test_a_service_that_answers_although_its_spec_is_wrong_is_not_said_to_be_silent() -> None:
    invalid = condition("Ready", "False", "ValidationFailed", message="spec.x: it is wrong.")
    status = {"conditions": [invalid], "numServeEndpoints": 2}
    (found,) = examined(changed(Source.RAY_SERVICES, {"status": status})).findings
    assert found.sentence == "It goes on as it was, since its spec cannot be carried out: spec.x: it is wrong."
