"""Whether the nodes with cards work: their agent, their software, and what they were ordered to offer."""

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from gpu_control_plane.api.gpunodestate import GPUNodeState, ObservedReport, ProblemReason, StepResult
from gpu_control_plane.api.names import GPU_LABELS, GROUP, Label, NodeCondition, Reason
from gpu_control_plane.api.nodefeature import feature_name
from gpu_control_plane.api.pod import AGENT, Pod
from gpu_control_plane.doctor.check import Check, Found, Group, check
from gpu_control_plane.doctor.checks.control_plane import upgrade
from gpu_control_plane.doctor.findings import (
    Evidence,
    Mend,
    MendKind,
    Severity,
    command_in,
    of_condition,
    reference,
)
from gpu_control_plane.doctor.kinds import CheckedNode
from gpu_control_plane.doctor.snapshot import Snapshot, Source
from gpu_control_plane.installation.pod_security import ENFORCE, PRIVILEGED
from gpu_control_plane.kube.conditions import FALSE, TRUE, find
from gpu_control_plane.kube.lease_watch import active_holder, observe
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.quantities import parse_quantity
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.pools.explain.node_fit import placement_misfit
from gpu_control_plane.rules.managed_nodes import has_gpu_label
from gpu_control_plane.rules.node_readiness import REQUIRED_CHECKS
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces

AGENTS: Final = "gpu-control-plane-agent"

_DRIVER_NAME: Final = f"{GROUP}/driver.name"
_AGENT_REASONS: Final = frozenset({Reason.AGENT_NOT_READY})


def _explain(node: str) -> str:
    return f"kubectl gpu explain node {node}"


def _in_order(node: CheckedNode) -> CheckedNode:
    """The node without the taints by which Kubernetes says how it is: pods of DaemonSets tolerate them."""
    taints = tuple(each for each in node.spec.taints if not each.key.startswith("node.kubernetes.io/"))
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints))


def _agents(snapshot: Snapshot) -> dict[str, Pod]:
    """By node, its agent."""
    return {pod.spec.target_node: pod for pod in snapshot.pods if pod.component == AGENT and pod.active}


def _unmanaged(state: GPUNodeState | None) -> bool:
    """Whether the controller says that a label takes the node out on purpose."""
    held = find(state.status.conditions, NodeCondition.READY_FOR_POOLING) if state is not None else None
    return held is not None and held.reason == Reason.NOT_MANAGED


@check("no-gpu-node", "No node has a card", Group.NODES, Severity.INFO, Source.NODES, Source.STATES)
def no_gpu_node(snapshot: Snapshot) -> Iterator[Found]:
    """Labels bring the agent to a node, and the agent finds its cards: without labels nothing begins."""
    if snapshot.states or any(has_gpu_label(node.metadata.labels) for node in snapshot.nodes):
        return
    yield Found(
        about=counted(len(snapshot.nodes), "node"),
        sentence="No Node has a label that says that it has a card: neither Node Feature Discovery nor our discovery "
        "has found one. If a node has cards, label it.",
        evidence=Evidence("Node/*", f"metadata.labels[{Label.GPU_PRESENT.value}]", "absent"),
        fix=f"kubectl label node NODE {Label.GPU_PRESENT.value}=true",
    )


@check(
    "agent-missing",
    "A GPU node has no agent",
    Group.NODES,
    Severity.WARNING,
    Source.NODES,
    Source.PODS,
    Source.DAEMONSETS,
    settles=True,
)
def agent_missing(snapshot: Snapshot) -> Iterator[Found]:
    """The DaemonSet says for which nodes agents are, however the values have it. Where agents are no pods, as simulated
    ones are not, there is none and nothing to miss."""
    daemonset = next((each for each in snapshot.daemonsets if each.name == AGENTS), None)
    if daemonset is None:
        return
    agents, spec = _agents(snapshot), daemonset.spec.template.spec
    for node in snapshot.nodes:
        labels = node.metadata.labels
        if node.name in agents or not has_gpu_label(labels) or placement_misfit(spec, _in_order(node)) is not None:
            continue
        label = next(each for each in GPU_LABELS if labels.get(each) == "true")
        yield Found(
            about=f"node {node.name}",
            sentence="The Node has cards by its labels, and no agent runs there: its cards are not seen.",
            evidence=Evidence(reference(node), f"metadata.labels[{label}]", "true, and no pod of the agent"),
            fix=f"kubectl -n {snapshot.namespace} describe daemonset {AGENTS}",
        )


@check(
    "agent-refused",
    "Agents may not be created",
    Group.NODES,
    Severity.WARNING,
    *agent_missing.needs,
    Source.REFUSALS,
    settles=True,
)
def agent_refused(snapshot: Snapshot) -> Iterator[Found]:
    """By Pod Security or for their priority, as the DaemonSet's Events say. Events outlive their cause, so they count
    only while an agent is missing; other words of them might be a tenant's."""
    if not any(agent_missing.look(snapshot)):
        return
    for event in snapshot.refusals:
        about = event.regarding
        if about is None or (about.kind, about.namespace, about.name) != ("DaemonSet", snapshot.namespace, AGENTS):
            continue
        if "violates PodSecurity" in event.note:
            why = "Pod Security refuses them in this namespace"
            fix = f"kubectl label namespace {snapshot.namespace} {ENFORCE}={PRIVILEGED} --overwrite"
        elif "PriorityClass" in event.note:
            why = "the cluster keeps their priority class to other namespaces"
            fix = upgrade(snapshot.namespace, snapshot.daemonsets, " --set priorityClasses.create=true")
        else:
            continue
        yield Found(
            about=f"DaemonSet {AGENTS}",
            sentence=f"Its pods are not created: {why}.",
            evidence=Evidence(reference(event), "note", event.note[:160]),
            fix=fix,
        )
        return


@check(
    "agent-not-ready",
    "An agent crashes or cannot start",
    Group.NODES,
    Severity.WARNING,
    Source.PODS,
    settles=True,
)
def agent_not_ready(snapshot: Snapshot) -> Iterator[Found]:
    for node, pod in _agents(snapshot).items():
        if pod.ready or not (pod.trouble or pod.crashing):
            continue
        why = pod.trouble or "it ends again and again"
        yield Found(
            about=f"node {node or pod.name}",
            sentence=f"The agent {pod.name} does not run; pods keep their cards, and no new one gets any. {why}",
            evidence=Evidence(reference(pod), "status.containerStatuses[].state", why[:160]),
            fix=f"kubectl -n {snapshot.namespace} logs {pod.name} --all-containers --previous --tail=50",
        )


@check(
    "node-unlabelled",
    "A node reports cards and lacks the label that brings the agent",
    Group.NODES,
    Severity.WARNING,
    Source.NODES,
    Source.STATES,
)
def node_unlabelled(snapshot: Snapshot) -> Iterator[Found]:
    nodes = {node.name: node for node in snapshot.nodes}
    for state in snapshot.states:
        node = nodes.get(state.name)
        if node is None or not state.status.device_count or has_gpu_label(node.metadata.labels):
            continue
        yield Found(
            about=f"node {node.name}",
            sentence=f"It reports {counted(state.status.device_count, 'card')}, and its Node has none of the labels by "
            "which the agent is placed: the agent leaves it, or has.",
            evidence=Evidence(reference(node), f"metadata.labels[{Label.GPU_PRESENT.value}]", "absent"),
            fix=f"kubectl label node {node.name} {Label.GPU_PRESENT.value}=true",
            mend=Mend(MendKind.LABEL_NODE, Key(node.name), node.metadata.uid),
        )


def _condition_check(
    name: str,
    title: str,
    severity: Severity,
    kind: NodeCondition,
    bad: str,
    *,
    only: Collection[Reason] = (),
    but: Collection[Reason] = (),
) -> Check:
    """A check that passes on what a condition of the node says, and the way out that its message names."""

    @check(name, title, Group.NODES, severity, Source.STATES)
    def look(snapshot: Snapshot) -> Iterator[Found]:
        for state in snapshot.states:
            said = find(state.status.conditions, kind)
            if said is None or said.status != bad or said.reason in but or (only and said.reason not in only):
                continue
            yield Found(
                about=f"node {state.name}",
                sentence=said.message or kind.meaning,
                evidence=of_condition(state, said),
                fix=command_in(said.message, _explain(state.name)),
            )

    return look


node_vanished = _condition_check(
    "node-vanished", "A Node, or all its cards, are gone", Severity.WARNING, NodeCondition.VANISHED, TRUE
)
inventory_incomplete = _condition_check(
    "inventory-incomplete",
    "Not all cards of a node are known",
    Severity.WARNING,
    NodeCondition.INVENTORY_COMPLETE,
    FALSE,
    but={Reason.NODE_GONE},
)
driver_missing = _condition_check(
    "driver-missing",
    "The driver of a node is absent or does not work",
    Severity.WARNING,
    NodeCondition.DRIVER_MISSING,
    TRUE,
)
toolkit_missing = _condition_check(
    "toolkit-missing",
    "Containers of a node cannot be given a card",
    Severity.WARNING,
    NodeCondition.TOOLKIT_MISSING,
    TRUE,
)
monitoring_missing = _condition_check(
    "monitoring-missing",
    "Nothing exports metrics of a node's cards",
    Severity.INFO,
    NodeCondition.MONITORING_MISSING,
    TRUE,
)
labels_stale = _condition_check(
    "labels-stale",
    "The feature labels of a node are not true",
    Severity.INFO,
    NodeCondition.GFD_READY,
    FALSE,
    only={Reason.FEATURE_LABELS_STALE, Reason.GFD_NOT_READY},
)
agent_lost = _condition_check(
    "agent-lost",
    "The agent of a node has been away for a while",
    Severity.WARNING,
    NodeCondition.DEGRADED,
    TRUE,
    only=_AGENT_REASONS,
)
conflicting_plugin = _condition_check(
    "conflicting-plugin",
    "Another device plugin serves a node's cards",
    Severity.CRITICAL,
    NodeCondition.DEGRADED,
    TRUE,
    only={Reason.CONFLICTING_DEVICE_PLUGIN},
)
driver_hung = _condition_check(
    "driver-hung",
    "A call into the driver does not return",
    Severity.CRITICAL,
    NodeCondition.DEGRADED,
    TRUE,
    only={Reason.DRIVER_HUNG},
)
agent_paused = _condition_check(
    "agent-paused",
    "The agent of a node has let go of the driver",
    Severity.INFO,
    NodeCondition.DEGRADED,
    TRUE,
    only={Reason.DRIVER_RELEASED},
)
node_degraded = _condition_check(
    "node-degraded",
    "A node does not work as it should",
    Severity.WARNING,
    NodeCondition.DEGRADED,
    TRUE,
    but={
        *_AGENT_REASONS,
        Reason.CONFLICTING_DEVICE_PLUGIN,
        Reason.DRIVER_HUNG,
        Reason.DRIVER_RELEASED,
    },
)
checks_pending = _condition_check(
    "checks-pending",
    "A node has yet to prove that it works",
    Severity.INFO,
    NodeCondition.READY_FOR_POOLING,
    FALSE,
    only={Reason.CHECKS_PENDING},
)


@check("nouveau-loaded", "Nouveau is in the way of the driver", Group.NODES, Severity.WARNING, Source.NODES)
def nouveau_loaded(snapshot: Snapshot) -> Iterator[Found]:
    """Node Feature Discovery tells which driver has the cards, by a rule of ours."""
    for node in snapshot.nodes:
        if node.metadata.labels.get(_DRIVER_NAME) == "nouveau":
            yield Found(
                about=f"node {node.name}",
                sentence="The kernel has given its cards to Nouveau, so NVIDIA's driver cannot have them: blacklist "
                "nouveau on the node and restart it.",
                evidence=Evidence(reference(node), f"metadata.labels[{_DRIVER_NAME}]", "nouveau"),
                fix=f"kubectl drain {node.name} --ignore-daemonsets",
            )


@check("validation-failed", "A check that the agent makes failed", Group.NODES, Severity.WARNING, Source.STATES)
def validation_failed(snapshot: Snapshot) -> Iterator[Found]:
    for state in snapshot.states:
        validation = state.status.validation
        for step in validation.steps if validation is not None else ():
            if step.result is not StepResult.FAILED:
                continue
            message = step.message or "no reason was given"
            yield Found(
                about=f"node {state.name}",
                sentence=f"The check of {step.name} failed: {message}",
                evidence=Evidence(reference(state), f"status.validation.steps[{step.name}].result", step.result),
                fix=command_in(message, _explain(state.name)),
                severity=None if step.name in REQUIRED_CHECKS else Severity.INFO,
            )


@check(
    "report-not-read",
    "The controller has not taken a node's report in",
    Group.NODES,
    Severity.WARNING,
    Source.STATES,
    Source.REPORTS,
    settles=True,
)
def report_not_read(snapshot: Snapshot) -> Iterator[Found]:
    reports = {report.name: report for report in snapshot.reports}
    for state in snapshot.states:
        report = reports.get(feature_name(state.name))
        seen = state.status.observed_report
        if report is None or (seen is not None and seen.covers(report.metadata)):
            continue
        latest = ObservedReport.of(report.metadata)
        yield Found(
            about=f"node {state.name}",
            sentence="Its agent has reported something that the controller has not taken in.",
            evidence=Evidence(
                reference(state),
                "status.observedReport.generation",
                f"{seen.generation if seen else 'absent'}, the report has {latest.generation}",
            ),
            fix=f"kubectl -n {snapshot.namespace} logs -l app.kubernetes.io/component=controller --prefix --tail=50",
        )


@check(
    "order-not-answered",
    "The agent of a node does not answer its orders",
    Group.NODES,
    Severity.WARNING,
    Source.STATES,
    settles=True,
)
def order_not_answered(snapshot: Snapshot) -> Iterator[Found]:
    """The agent answers an order within moments, so that one without an answer means that it is silent."""
    for state in snapshot.states:
        plugin, wanted = state.status.plugin, state.metadata.generation
        if not state.spec.assignments and plugin is None:
            continue
        answered = plugin.observed_generation if plugin is not None else 0
        if answered >= wanted or state.status.quiesced is not None or _unmanaged(state):
            continue
        yield Found(
            about=f"node {state.name}",
            sentence="Its agent is silent: the latest order has no answer, so no card joins or leaves a pool there.",
            evidence=Evidence(reference(state), "status.plugin.observedGeneration", f"{answered} of {wanted}"),
            fix=f"kubectl -n {snapshot.namespace} get pods -l app.kubernetes.io/component=agent "
            f"--field-selector spec.nodeName={state.name}",
        )


@check(
    "order-refused",
    "A card cannot be offered as ordered",
    Group.NODES,
    Severity.WARNING,
    Source.STATES,
)
def order_refused(snapshot: Snapshot) -> Iterator[Found]:
    """What waits for a pod is no fault; MIG has a check of its own."""
    for state, card, reason, message in _problems(snapshot, mig=False):
        yield Found(
            about=f"card {card}",
            sentence=f"It is not offered as ordered: {message}",
            evidence=Evidence(reference(state), f"status.plugin.problems[{card}].reason", reason),
            fix=command_in(message, _explain(state.name)),
        )


@check("mig-not-as-ordered", "A card is not partitioned as ordered", Group.NODES, Severity.WARNING, Source.STATES)
def mig_not_as_ordered(snapshot: Snapshot) -> Iterator[Found]:
    for state, card, reason, message in _problems(snapshot, mig=True):
        yield Found(
            about=f"card {card}",
            sentence=f"Its MIG instances are not those of its pool: {message}",
            evidence=Evidence(reference(state), f"status.plugin.problems[{card}].reason", reason),
            fix=command_in(message, _explain(state.name)),
        )


def _problems(snapshot: Snapshot, *, mig: bool) -> Iterator[tuple[GPUNodeState, str, str, str]]:
    for state in snapshot.states:
        orders = {order.inventory_id: order for order in state.spec.assignments}
        for problem in state.status.plugin.problems if state.status.plugin is not None else ():
            order = orders.get(problem.inventory_id)
            is_mig = order is not None and order.allocation.mig is not None
            if problem.reason is not ProblemReason.WAITING and is_mig is mig:
                yield state, problem.inventory_id, problem.reason, problem.message


@check(
    "resource-not-listed",
    "The kubelet does not list what the agent announced",
    Group.NODES,
    Severity.WARNING,
    Source.STATES,
    Source.NODES,
    settles=True,
)
def resource_not_listed(snapshot: Snapshot) -> Iterator[Found]:
    nodes = {node.name: node for node in snapshot.nodes}
    for state in snapshot.states:
        node, plugin = nodes.get(state.name), state.status.plugin
        if node is None or plugin is None or not node.ready:
            continue
        for announced in plugin.resources:
            listed = int(parse_quantity(node.status.capacity.get(announced.name, "0")))
            if listed >= announced.units:
                continue
            yield Found(
                about=f"node {state.name}",
                sentence=f"The agent has announced {counted(announced.units, 'unit')} of {announced.name}, and the "
                f"kubelet lists {listed}: pods cannot be placed there.",
                evidence=Evidence(reference(node), f"status.capacity[{announced.name}]", str(listed)),
                fix=f"kubectl -n {snapshot.namespace} delete pod -l app.kubernetes.io/component=agent "
                f"--field-selector spec.nodeName={state.name}",
            )


@check(
    "node-unusable",
    "A node with cards of pools takes no pods",
    Group.NODES,
    Severity.WARNING,
    Source.NODES,
    Source.STATES,
    settles=True,
)
def node_unusable(snapshot: Snapshot) -> Iterator[Found]:
    nodes = {node.name: node for node in snapshot.nodes}
    for state in snapshot.states:
        node, cards = nodes.get(state.name), len(state.spec.assignments)
        if node is None or not cards:
            continue
        if (found := _unusable(node)) is not None:
            what, evidence, fix, severity = found
            yield Found(
                about=f"node {node.name}",
                sentence=f"The node {what}: {counted(cards, 'card')} of pools there cannot be used.",
                evidence=evidence,
                fix=fix,
                severity=severity,
            )


def _unusable(node: CheckedNode) -> tuple[str, Evidence, str, Severity | None] | None:
    if not node.ready:
        said = next((flag.status for flag in node.status.conditions if flag.type == "Ready"), "absent")
        evidence = Evidence(reference(node), "status.conditions[Ready]", said)
        return "is not ready", evidence, f"kubectl describe node {node.name}", None
    if node.spec.unschedulable:
        evidence = Evidence(reference(node), "spec.unschedulable", "true")
        return "is cordoned", evidence, f"kubectl uncordon {node.name}", Severity.INFO
    return None


@check(
    "nvidia-operator-active",
    "NVIDIA's operator works beside ours",
    Group.NODES,
    Severity.WARNING,
    Source.NVIDIA_LEASES,
    Source.LEASES,
)
def nvidia_operator_active(snapshot: Snapshot) -> Iterator[Found]:
    """Ours stands back while NVIDIA's is active: ClusterPolicies and drivers are left to it."""
    trusted = TrustedNamespaces(own=snapshot.namespace)
    leases = [lease for lease in snapshot.nvidia_leases if trusted.include(lease.metadata.namespace)]
    holder = active_holder((observe(lease, snapshot.now) for lease in leases), snapshot.now)
    if holder is None:
        return
    lease = next(each for each in leases if each.metadata.namespace == holder.namespace)
    yield Found(
        about=f"namespace {holder.namespace}",
        sentence="NVIDIA's operator is active, so ours writes nothing to ClusterPolicies, NVIDIADrivers and their "
        "operands.",
        evidence=Evidence(reference(lease), "spec.holderIdentity", lease.holder),
        fix="kubectl gpu migrate plan",
    )
