"""What a ClusterPolicy says of itself: state, conditions, and each state of the stack. Pure."""

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
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.operator.nvidia_lease import Rival
from gpu_control_plane.operator.stack.readiness import Reach, Standing, joint
from gpu_control_plane.operator.stack.render import Rendered

_NAMED: Final = 3
_ABOUT_DRIVERS: Final = ("state-driver", "state-operator-validation")
_MESSAGE_LIMIT: Final = 32768


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether everything is as it should be, and the one reason that people are told."""

    ready: bool
    reason: StackReason
    message: str = ""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the status is made from."""

    generation: int
    namespace: str
    rendered: Sequence[Rendered] = ()
    standings: Mapping[str, tuple[Standing, ...]] = {}
    """Of each state, how its DaemonSets stand."""
    write_problems: Mapping[str, str] = {}
    """What could not be written, by state."""
    gpu_nodes: int = 0
    feature_labels: bool = True
    """Whether any node has a label of Node Feature Discovery."""
    unlabelled: Sequence[str] = ()
    """Nodes whose labels are not written yet."""
    host_problems: Mapping[str, str] = {}
    """What is wrong with a host's own driver, by node."""
    converged: bool = True
    """Whether nothing is left to be written; while something is, nobody may be told that all is well."""
    upgrade: UpgradeReport | None = None
    drivers_pending: str = ""
    """Why NVIDIADrivers keep the whole from being ready."""
    unknown: Sequence[str] = ()
    problem: str = ""
    """Why the spec cannot be carried out at all."""
    now: datetime

    @property
    def reach(self) -> Reach:
        """The nodes that pods of any state come to, and those that take none."""
        return joint(standing.reach for standings in self.standings.values() for standing in standings)


def status_of(held: StackStatus, picture: Picture) -> StackStatus | None:
    """The status of the ClusterPolicy in force; None where praise would come too early, since more is to be written."""
    named_by = _names_host_drivers(picture.rendered)
    states = tuple(_state(rendered, picture, hosts=rendered.state == named_by) for rendered in picture.rendered)
    verdict = _verdict(states, picture)
    if verdict.ready and not picture.converged:
        return None
    return StackStatus(
        state=State.READY if verdict.ready else State.NOT_READY,
        namespace=picture.namespace,
        observed_generation=picture.generation,
        states=states,
        upgrade=picture.upgrade,
        conditions=(
            *outcome(held.conditions, verdict, generation=picture.generation, now=picture.now),
            *unknown_fields(held.conditions, picture.unknown, picture.generation, picture.now),
        ),
    )


def ignored_status(held: StackStatus, winner: str, namespace: str, generation: int, now: datetime) -> StackStatus:
    """The status of a ClusterPolicy that is not in force."""
    message = f"The ClusterPolicy {winner} is older and in force. Delete one of the two."
    verdict = Verdict(ready=False, reason=StackReason.IGNORED, message=message)
    return StackStatus(
        state=State.IGNORED,
        namespace=namespace,
        observed_generation=generation,
        conditions=outcome(held.conditions, verdict, generation=generation, now=now),
    )


def rival_condition(held: Iterable[Condition], rival: Rival, generation: int, now: datetime) -> Condition:
    message = (
        f"NVIDIA's operator is in charge (lease in {rival.namespace}, held by {rival.holder or 'nobody'}); nothing is"
        " written here. `kubectl gpu migrate plan` says what would change, `kubectl gpu migrate take-over` does it."
    )
    kind = StackCondition.OTHER_OPERATOR_ACTIVE
    return condition(held, kind, True, "LeaseHeld", message, generation=generation, now=now)


def outcome(
    held: Iterable[Condition], verdict: Verdict, *, generation: int, now: datetime
) -> tuple[Condition, Condition]:
    """The pair of conditions that says the same twice, as the users of NVIDIA's operator expect it."""
    known, ready = tuple(held), verdict.ready
    good, bad = (verdict.reason, StackReason.READY) if ready else (StackReason.ERROR, verdict.reason)
    praise, blame = (verdict.message, "") if ready else ("", verdict.message)
    return (
        condition(known, StackCondition.READY, ready, good, praise, generation=generation, now=now),
        condition(known, StackCondition.ERROR, not ready, bad, blame, generation=generation, now=now),
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


def _names_host_drivers(rendered: Iterable[Rendered]) -> str:
    """The state under which people find drivers of hosts that will not do: the driver's own, or where the stack brings
    none, the one whose pods wait for them."""
    return next((held.state for held in rendered if held.enabled and held.state in _ABOUT_DRIVERS), "")


def _state(rendered: Rendered, picture: Picture, *, hosts: bool) -> StateReport:
    """How a state stands. With `hosts` it also names drivers of hosts that will not do."""
    if not rendered.enabled:
        return StateReport(name=rendered.state, state=OperandState.DISABLED)
    problem = rendered.problem or picture.write_problems.get(rendered.state, "")
    if problem:
        return StateReport(name=rendered.state, state=OperandState.FAILED, message=problem[:1024])
    standings = picture.standings.get(rendered.state, ())
    troubles = [trouble for standing in standings for trouble in standing.troubles]
    if hosts:  # first, since it is why a pod there waits
        found = sorted(picture.host_problems.items())
        troubles[:0] = [NodeTrouble(node=node, reason="HostDriver", message=why[:1024]) for node, why in found]
    ready = all(standing.ready for standing in standings) and not troubles
    return StateReport(
        name=rendered.state,
        state=OperandState.READY if ready else OperandState.NOT_READY,
        desired=sum(standing.desired for standing in standings),
        ready=sum(standing.available for standing in standings),
        message="" if ready else "; ".join(standing.message for standing in standings if standing.message)[:1024],
        nodes=_once(troubles),
    )


def _once(troubles: list[NodeTrouble]) -> tuple[NodeTrouble, ...]:
    """The first trouble of each node."""
    by_node: dict[str, NodeTrouble] = {}
    for trouble in troubles:
        by_node.setdefault(trouble.node, trouble)
    return tuple(by_node.values())[:MAX_NODES_NAMED]


def _verdict(states: Sequence[StateReport], picture: Picture) -> Verdict:
    if obstacle := _obstacle(states, picture):
        reason, message = obstacle
        return Verdict(ready=False, reason=reason, message=message[:_MESSAGE_LIMIT])
    if picture.gpu_nodes:
        barred = picture.reach.barred
        message = f"All states are ready on {picture.gpu_nodes - len(barred)} nodes."
        if barred:
            message += f" Out of reach are {len(barred)}: {_barred(barred)}"
        return Verdict(ready=True, reason=StackReason.RECONCILED, message=message)
    if picture.feature_labels:
        return Verdict(ready=True, reason=StackReason.NO_GPU_NODES, message="No node has a card.")
    message = "No node has labels of Node Feature Discovery, so none is known to have a card. Install it."
    return Verdict(ready=True, reason=StackReason.NFD_LABELS_MISSING, message=message)


def _obstacle(states: Sequence[StateReport], picture: Picture) -> tuple[StackReason, str] | None:
    """The gravest thing that is in the way, with all of its kind."""
    failed = [state for state in states if state.state is OperandState.FAILED]
    waiting = [state for state in states if state.state is OperandState.NOT_READY]
    if picture.problem:
        return StackReason.RECONCILE_FAILED, picture.problem
    if failed:
        return StackReason.RECONCILE_FAILED, "; ".join(f"{state.name}: {state.message}" for state in failed)
    if picture.unlabelled:
        count, first = len(picture.unlabelled), ", ".join(sorted(picture.unlabelled)[:_NAMED])
        return StackReason.LABELLING, f"{count} nodes do not have all their labels yet: {first}"
    if waiting or picture.drivers_pending:
        parts = [*map(_named, waiting), *filter(None, (picture.drivers_pending,))]
        return StackReason.OPERAND_NOT_READY, "; ".join(parts)
    reach = picture.reach
    if reach.barred and not reach.open:
        # Kubernetes counts no node that takes no pods, so each DaemonSet looks as if it ran wherever it should.
        return StackReason.OPERAND_NOT_READY, f"no GPU node takes pods of the stack: {_barred(reach.barred)}"
    return None


def _barred(nodes: Mapping[str, str]) -> str:
    """The first of the nodes that are out of reach, each with the taint that makes it so, and what to do about it."""
    named = ", ".join(f"{node} ({why})" for node, why in list(nodes.items())[:_NAMED])
    hint = (
        " Pods bear the taints that daemonsets.tolerations names."
        if not all(map(_by_kubernetes, nodes.values()))
        else ""
    )
    return f"{named}{', …' if len(nodes) > _NAMED else ''}.{hint}"


def _by_kubernetes(taint: str) -> bool:
    return taint.startswith("node.kubernetes.io/")


def _named(state: StateReport) -> str:
    """A state with its first broken nodes, each with its reason."""
    nodes = ", ".join(f"{trouble.node} ({trouble.reason})" for trouble in state.nodes[:_NAMED])
    return f"{state.name}: {nodes or state.message or 'not ready'}"
