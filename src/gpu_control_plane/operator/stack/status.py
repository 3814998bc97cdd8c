"""The status of a ClusterPolicy: state, conditions, and each state of the stack. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import StackCondition, StackReason
from gpu_control_plane.api.nvidia.status import (
    MAX_NODES_NAMED,
    NodeTrouble,
    OperandState,
    StackStatus,
    State,
    StateReport,
    UpgradeReport,
)
from gpu_control_plane.kube.conditions import condition
from gpu_control_plane.kube.lease_watch import LeaseHolder
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.kube.sentences import counted, counted_are
from gpu_control_plane.operator.stack.readiness import NodeCoverage, Readiness, merged_coverage
from gpu_control_plane.operator.stack.render import RenderedState

_MOST_NAMED: Final = 3
_ABOUT_DRIVERS: Final = ("state-driver", "state-operator-validation")
_MESSAGE_LIMIT: Final = 32768


class ReadySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Whether everything is ready, with the reason and the message of the conditions."""

    ready: bool
    reason: StackReason
    message: str = ""


class PolicyStatusInput(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the status of a ClusterPolicy depends on."""

    generation: int
    namespace: str
    rendered: Sequence[RenderedState] = ()
    readiness: Mapping[str, tuple[Readiness, ...]] = {}
    """The readiness of each state's DaemonSets."""
    write_problems: Mapping[str, str] = {}
    """What could not be written, by state."""
    gpu_nodes: int = 0
    feature_labels: bool = True
    """Whether any node has a label of Node Feature Discovery."""
    unlabelled: Sequence[str] = ()
    """Nodes whose labels are not written yet."""
    host_problems: Mapping[str, str] = {}
    """By node, why the host's own driver cannot be used."""
    converged: bool = True
    """Whether nothing is left to be written; until then the policy is not reported as ready."""
    upgrade: UpgradeReport | None = None
    drivers_pending: str = ""
    """Why NVIDIADrivers keep the policy from being ready."""
    unknown: Sequence[str] = ()
    problem: str = ""
    """Why the spec cannot be carried out at all."""
    now: datetime

    @property
    def coverage(self) -> NodeCoverage:
        """The nodes that pods of any state can run on, and those that none can run on."""
        return merged_coverage(each.coverage for readiness in self.readiness.values() for each in readiness)


def status_of(held: StackStatus, observed: PolicyStatusInput) -> StackStatus | None:
    """The status of the active ClusterPolicy; None if it would be ready, but objects are still to be written."""
    reported_in = _host_driver_state(observed.rendered)
    states = tuple(
        _state_report(rendered, observed, host_drivers=rendered.state == reported_in) for rendered in observed.rendered
    )
    summary = _summary(states, observed)
    if summary.ready and not observed.converged:
        return None
    return StackStatus(
        state=State.READY if summary.ready else State.NOT_READY,
        namespace=observed.namespace,
        observed_generation=observed.generation,
        states=states,
        upgrade=observed.upgrade,
        conditions=(
            *ready_conditions(held.conditions, summary, generation=observed.generation, now=observed.now),
            *unknown_fields(held.conditions, observed.unknown, observed.generation, observed.now),
        ),
    )


def ignored_status(held: StackStatus, winner: str, namespace: str, generation: int, now: datetime) -> StackStatus:
    """The status of a ClusterPolicy that is not the active one."""
    message = f"The ClusterPolicy {winner} is older and in force. Delete one of the two."
    summary = ReadySummary(ready=False, reason=StackReason.IGNORED, message=message)
    return StackStatus(
        state=State.IGNORED,
        namespace=namespace,
        observed_generation=generation,
        conditions=ready_conditions(held.conditions, summary, generation=generation, now=now),
    )


def other_operator_condition(
    held: Iterable[Condition], holder: LeaseHolder, generation: int, now: datetime
) -> Condition:
    message = (
        f"NVIDIA's operator is active (Lease in {holder.namespace}, held by {holder.holder or 'an unnamed process'});"
        " nothing is written here. `kubectl gpu migrate plan` says what would change, `kubectl gpu migrate take-over`"
        " does it."
    )
    kind = StackCondition.OTHER_OPERATOR_ACTIVE
    return condition(held, kind, True, "LeaseHeld", message, generation=generation, now=now)


def ready_conditions(
    held: Iterable[Condition], summary: ReadySummary, *, generation: int, now: datetime
) -> tuple[Condition, Condition]:
    """The conditions Ready and Error, which always say the opposite of each other, as NVIDIA's operator has them."""
    known, ready = tuple(held), summary.ready
    ready_reason, error_reason = (summary.reason, StackReason.READY) if ready else (StackReason.ERROR, summary.reason)
    ready_message, error_message = (summary.message, "") if ready else ("", summary.message)
    return (
        condition(known, StackCondition.READY, ready, ready_reason, ready_message, generation=generation, now=now),
        condition(known, StackCondition.ERROR, not ready, error_reason, error_message, generation=generation, now=now),
    )


def unknown_fields(
    held: Iterable[Condition], unknown: Sequence[str], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """A condition that names fields without effect; none where every field is known."""
    if not unknown:
        return ()
    message = f"These fields are kept but have no effect: {', '.join(unknown)}"[:1024]
    kind = StackCondition.UNKNOWN_FIELDS
    return (condition(tuple(held), kind, True, StackReason.PRESENT, message, generation=generation, now=now),)


def _host_driver_state(rendered: Iterable[RenderedState]) -> str:
    """The state under which host drivers that cannot be used are reported: the driver's, or where the stack brings no
    driver, the one whose pods wait for it."""
    return next((held.state for held in rendered if held.enabled and held.state in _ABOUT_DRIVERS), "")


def _state_report(rendered: RenderedState, observed: PolicyStatusInput, *, host_drivers: bool) -> StateReport:
    """The report of one state; with `host_drivers` it also names host drivers that cannot be used."""
    if not rendered.enabled:
        return StateReport(name=rendered.state, state=OperandState.DISABLED)
    problem = rendered.problem or observed.write_problems.get(rendered.state, "")
    if problem:
        return StateReport(name=rendered.state, state=OperandState.FAILED, message=problem[:1024])
    readiness = observed.readiness.get(rendered.state, ())
    troubles = [trouble for each in readiness for trouble in each.troubles]
    if host_drivers:  # first, since it is the reason why a pod on the node is not ready
        found = sorted(observed.host_problems.items())
        troubles[:0] = [NodeTrouble(node=node, reason="HostDriver", message=why[:1024]) for node, why in found]
    ready = all(each.ready for each in readiness) and not troubles
    return StateReport(
        name=rendered.state,
        state=OperandState.READY if ready else OperandState.NOT_READY,
        desired=sum(each.desired for each in readiness),
        ready=sum(each.available for each in readiness),
        message="" if ready else "; ".join(each.message for each in readiness if each.message)[:1024],
        nodes=_first_of_each_node(troubles),
    )


def _first_of_each_node(troubles: list[NodeTrouble]) -> tuple[NodeTrouble, ...]:
    by_node: dict[str, NodeTrouble] = {}
    for trouble in troubles:
        by_node.setdefault(trouble.node, trouble)
    return tuple(by_node.values())[:MAX_NODES_NAMED]


def _summary(states: Sequence[StateReport], observed: PolicyStatusInput) -> ReadySummary:
    if not_ready := _not_ready_reason(states, observed):
        reason, message = not_ready
        return ReadySummary(ready=False, reason=reason, message=message[:_MESSAGE_LIMIT])
    if observed.gpu_nodes:
        tainted = observed.coverage.tainted
        message = f"All states are ready on {counted(observed.gpu_nodes - len(tainted), 'node')}."
        if tainted:
            message += f" Out of reach are {len(tainted)}: {_tainted(tainted)}"
        return ReadySummary(ready=True, reason=StackReason.RECONCILED, message=message)
    if observed.feature_labels:
        return ReadySummary(ready=True, reason=StackReason.NO_GPU_NODES, message="No node has a card.")
    message = "No node has labels of Node Feature Discovery, so none is known to have a card. Install it."
    return ReadySummary(ready=True, reason=StackReason.NFD_LABELS_MISSING, message=message)


def _not_ready_reason(states: Sequence[StateReport], observed: PolicyStatusInput) -> tuple[StackReason, str] | None:
    """Why the policy is not ready: of several reasons the most serious, with everything it applies to."""
    failed = [state for state in states if state.state is OperandState.FAILED]
    waiting = [state for state in states if state.state is OperandState.NOT_READY]
    if observed.problem:
        return StackReason.RECONCILE_FAILED, observed.problem
    if failed:
        return StackReason.RECONCILE_FAILED, "; ".join(f"{state.name}: {state.message}" for state in failed)
    if observed.unlabelled:
        count, first = len(observed.unlabelled), ", ".join(sorted(observed.unlabelled)[:_MOST_NAMED])
        return StackReason.LABELLING, f"{counted_are(count, 'node')} not fully labelled yet: {first}"
    if waiting or observed.drivers_pending:
        parts = [*map(_named, waiting), *filter(None, (observed.drivers_pending,))]
        return StackReason.OPERAND_NOT_READY, "; ".join(parts)
    coverage = observed.coverage
    if coverage.tainted and not coverage.schedulable:
        # Kubernetes does not count nodes with such taints, so each DaemonSet seems to run on all of its nodes.
        return StackReason.OPERAND_NOT_READY, f"no GPU node takes pods of the stack: {_tainted(coverage.tainted)}"
    return None


def _tainted(nodes: Mapping[str, str]) -> str:
    """The first of the nodes whose taint pods do not tolerate, each with the taint, and what to do about it."""
    named = ", ".join(f"{node} ({why})" for node, why in list(nodes.items())[:_MOST_NAMED])
    hint = (
        " Pods bear the taints that daemonsets.tolerations names."
        if not all(map(_set_by_kubernetes, nodes.values()))
        else ""
    )
    return f"{named}{', …' if len(nodes) > _MOST_NAMED else ''}.{hint}"


def _set_by_kubernetes(taint: str) -> bool:
    return taint.startswith("node.kubernetes.io/")


def _named(state: StateReport) -> str:
    """A state with the first nodes on which it is not ready, each with its reason."""
    nodes = ", ".join(f"{trouble.node} ({trouble.reason})" for trouble in state.nodes[:_MOST_NAMED])
    return f"{state.name}: {nodes or state.message or 'not ready'}"
