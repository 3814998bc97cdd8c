"""What the software stack says: ClusterPolicies, NVIDIADrivers, driver upgrades."""

from collections.abc import Iterator
from typing import Final

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, StackCondition, UpgradeState
from gpu_control_plane.api.nvidia.status import OperandState, StackStatus, State
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver, UnreadableSpec
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.doctor.check import Found, Group, check
from gpu_control_plane.doctor.findings import Evidence, Severity, command_in, of_condition, reference
from gpu_control_plane.doctor.snapshot import Snapshot, Source
from gpu_control_plane.kube.conditions import TRUE, find
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.operator.cluster_policy import parse_active_policy

type Stored = StoredClusterPolicy | StoredNVIDIADriver

_BROKEN: Final = frozenset({OperandState.NOT_READY, OperandState.FAILED})


def _describe(item: Stored) -> str:
    return f"kubectl describe {item.resource.plural} {item.name}"


def _about(item: Stored) -> str:
    return f"{item.resource.kind} {item.name}"


@check(
    "stack-not-ready",
    "A part of the software stack does not run everywhere",
    Group.STACK,
    Severity.WARNING,
    Source.CLUSTER_POLICIES,
)
def stack_not_ready(snapshot: Snapshot) -> Iterator[Found]:
    for policy in snapshot.cluster_policies:
        for report in policy.status.states:
            if report.state not in _BROKEN:
                continue
            where = f" First of all on {report.nodes[0].node}: {report.nodes[0].message}" if report.nodes else ""
            yield Found(
                about=f"{_about(policy)}, {report.name}",
                sentence=f"It runs on {report.ready} of {counted(report.desired, 'node')}. {report.message}{where}",
                evidence=Evidence(reference(policy), f"status.states[{report.name}].state", report.state),
                fix=command_in(f"{report.message} {where}", _describe(policy)),
                severity=Severity.CRITICAL if report.state is OperandState.FAILED else None,
            )
        yield from _of_status(policy, policy.status)


@check("driver-not-ready", "A driver does not run everywhere", Group.STACK, Severity.WARNING, Source.DRIVERS)
def driver_not_ready(snapshot: Snapshot) -> Iterator[Found]:
    for driver in snapshot.drivers:
        yield from _of_status(driver, driver.status)


def _of_status(item: Stored, status: StackStatus) -> Iterator[Found]:
    """The object as a whole, where none of its states says more."""
    said = find(status.conditions, StackCondition.ERROR)
    if status.state is not State.NOT_READY or any(report.state in _BROKEN for report in status.states):
        return
    message = said.message if said is not None and said.status == TRUE else "it does not say why"
    yield Found(
        about=_about(item),
        sentence=f"It is not ready: {message}",
        evidence=of_condition(item, said)
        if said is not None
        else Evidence(reference(item), "status.state", "notReady"),
        fix=command_in(message, _describe(item)),
    )


@check(
    "cluster-policy-ignored",
    "A second ClusterPolicy has no effect",
    Group.STACK,
    Severity.WARNING,
    Source.CLUSTER_POLICIES,
)
def cluster_policy_ignored(snapshot: Snapshot) -> Iterator[Found]:
    for policy in snapshot.cluster_policies:
        if policy.status.state is State.IGNORED:
            yield Found(
                about=_about(policy),
                sentence="Another ClusterPolicy is older and in force: this one changes nothing.",
                evidence=Evidence(reference(policy), "status.state", State.IGNORED),
                fix=f"kubectl delete clusterpolicy {policy.name}",
            )


@check(
    "stack-unknown-fields",
    "A spec has fields that change nothing",
    Group.STACK,
    Severity.INFO,
    Source.CLUSTER_POLICIES,
    Source.DRIVERS,
)
def stack_unknown_fields(snapshot: Snapshot) -> Iterator[Found]:
    items: list[Stored] = [*snapshot.cluster_policies, *snapshot.drivers]
    for item in items:
        said = find(item.status.conditions, StackCondition.UNKNOWN_FIELDS)
        if said is not None and said.status == TRUE:
            yield Found(
                about=_about(item),
                sentence=said.message,
                evidence=of_condition(item, said),
                fix=command_in(said.message, f"kubectl edit {item.resource.plural} {item.name}"),
            )


@check("driver-upgrade-failed", "The driver upgrade of a node failed", Group.STACK, Severity.WARNING, Source.NODES)
def driver_upgrade_failed(snapshot: Snapshot) -> Iterator[Found]:
    for node in snapshot.nodes:
        if node.metadata.labels.get(NodeLabel.UPGRADE_STATE) == UpgradeState.FAILED:
            why = node.metadata.annotations.get(NodeAnnotation.FAILURE, "the Events of the node say why")
            yield Found(
                about=f"node {node.name}",
                sentence=f"The upgrade of its driver failed, and the node stays cordoned: {why}",
                evidence=Evidence(
                    reference(node), f"metadata.labels[{NodeLabel.UPGRADE_STATE.value}]", UpgradeState.FAILED
                ),
                fix=command_in(
                    why, f"kubectl annotate node {node.name} {NodeAnnotation.UPGRADE_REQUESTED.value}=true --overwrite"
                ),
            )


@check(
    "driver-upgrade-paused",
    "Nodes wait for a driver upgrade that is paused",
    Group.STACK,
    Severity.INFO,
    Source.CLUSTER_POLICIES,
    Source.DRIVERS,
)
def driver_upgrade_paused(snapshot: Snapshot) -> Iterator[Found]:
    items: list[Stored] = [*snapshot.cluster_policies, *snapshot.drivers]
    for item in items:
        upgrade, policy = item.status.upgrade, _upgrade_policy(item)
        if upgrade is None or not upgrade.pending or policy is None or not policy.paused:
            continue
        yield Found(
            about=_about(item),
            sentence=f"{counted(upgrade.pending, 'node')} of {upgrade.total} wait for their driver, and the upgrade is "
            "paused.",
            evidence=Evidence(reference(item), "spec…upgradePolicy.paused", "true"),
            fix="kubectl gpu upgrade resume",
        )


def _upgrade_policy(item: Stored) -> UpgradePolicy | None:
    try:
        if isinstance(item, StoredClusterPolicy):
            return item.read().spec.driver.upgrade_policy
        return item.read().spec.upgrade_policy
    except UnreadableSpec:
        return None


@check(
    "node-upgrade-skipped",
    "A node is left out of a driver upgrade",
    Group.STACK,
    Severity.INFO,
    Source.NODES,
)
def node_upgrade_skipped(snapshot: Snapshot) -> Iterator[Found]:
    for node in snapshot.nodes:
        labels = node.metadata.labels
        waits = labels.get(NodeLabel.UPGRADE_STATE) == UpgradeState.REQUIRED
        if waits and labels.get(NodeLabel.UPGRADE_SKIP) == "true":
            yield Found(
                about=f"node {node.name}",
                sentence="It needs another driver, and a label keeps the upgrade away from it.",
                evidence=Evidence(reference(node), f"metadata.labels[{NodeLabel.UPGRADE_SKIP.value}]", "true"),
                fix=f"kubectl label node {node.name} {NodeLabel.UPGRADE_SKIP.value}-",
            )


@check(
    "runtime-class-missing",
    "The RuntimeClass of the stack's operands is missing",
    Group.STACK,
    Severity.WARNING,
    Source.CLUSTER_POLICIES,
    Source.RUNTIME_CLASSES,
    settles=True,
)
def runtime_class_missing(snapshot: Snapshot) -> Iterator[Found]:
    """Pods that name a RuntimeClass which is not there are refused. With the NRI plugin no pod needs one."""
    active = parse_active_policy(snapshot.cluster_policies)
    if active is None or active.spec is None or active.spec.cdi.nri_plugin_enabled:
        return
    name, there = active.spec.operator.runtime_class, {each.name for each in snapshot.runtime_classes}
    if name and name not in there and active.policy.status.state is not None:
        yield Found(
            about=f"RuntimeClass {name}",
            sentence="Pods that name it are refused, operands among them; the operator makes it anew while it is in "
            "charge.",
            evidence=Evidence(reference(active.policy), "spec.operator.runtimeClass", name),
            fix=f"kubectl get runtimeclass {name}",
        )
