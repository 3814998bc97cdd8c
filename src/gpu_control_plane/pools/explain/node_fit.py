"""Whether a pod may go to a node, as far as that can be known from the two objects. Pure.

This is not a second scheduler: what other pods use, volumes, topology and affinity to pods are left to the real one,
whose own words are passed on.
"""

from collections.abc import Iterable

import msgspec

from gpu_control_plane.api.node import KEPT_RESOURCES, Node, Taint
from gpu_control_plane.api.pod import NodeExpression, NodeTerm, PlacedSpec, Toleration, WaitingPod
from gpu_control_plane.kube.quantities import parse_quantity
from gpu_control_plane.pools.explain.explanation import Cause

_HARD = frozenset({"NoSchedule", "NoExecute"})
_CORDONED = "node.kubernetes.io/unschedulable"


class Misfit(msgspec.Struct, frozen=True):
    """Why a pod cannot go to a node."""

    cause: Cause
    detail: str = ""
    """What it is about: a label, a taint, a quantity."""


def misfit(pod: WaitingPod, node: Node | None) -> Misfit | None:
    """The first reason, in the order in which a person would want to know it."""
    if node is None or not node.ready:
        return Misfit(Cause.NODE_NOT_READY)
    cordon = Taint(key=_CORDONED, effect="NoSchedule")
    if node.spec.unschedulable and not _tolerates(pod.spec.tolerations, cordon):
        return Misfit(Cause.CORDONED)
    if (found := placement_misfit(pod.spec, node)) is not None:
        return found
    for resource in sorted(KEPT_RESOURCES & node.status.allocatable.keys()):
        asked = sum(parse_quantity(part.resources.requests.get(resource, "0")) for part in pod.spec.containers)
        if asked > parse_quantity(node.status.allocatable[resource]):
            return Misfit(Cause.CPU_OR_MEMORY, resource)
    return None


def placement_misfit(spec: PlacedSpec, node: Node) -> Misfit | None:
    """What the labels and taints of a node have against pods of this spec. A cordon is no such thing."""
    if wanted := _unmatched(spec, node):
        return Misfit(Cause.SELECTOR, wanted)
    for taint in node.spec.taints:
        if taint.key != _CORDONED and taint.effect in _HARD and not _tolerates(spec.tolerations, taint):
            return Misfit(Cause.TAINT, taint_text(taint))
    return None


def taint_text(taint: Taint) -> str:
    """A taint as `kubectl taint` writes it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _unmatched(spec: PlacedSpec, node: Node) -> str:
    """What the spec asks of the node's labels and the node does not have; empty if it has everything."""
    labels = node.metadata.labels
    for key, value in spec.node_selector.items():
        if labels.get(key) != value:
            return f"{key}={value}"
    terms = spec.affinity.node_affinity.required.node_selector_terms
    if terms and not any(_matches(term, node) for term in terms):
        return _wanted(terms)
    return ""


def _wanted(terms: Iterable[NodeTerm]) -> str:
    expressions = [each for term in terms for each in term.match_expressions]
    if not expressions:
        return "affinity to other nodes"
    first = expressions[0]
    return f"affinity: {first.key} {first.operator} {','.join(first.values)}".rstrip()


def _matches(term: NodeTerm, node: Node) -> bool:
    fields = all((node.name in field.values) == (field.operator == "In") for field in term.match_fields)
    expressions = all(_holds(each, node.metadata.labels.get(each.key)) for each in term.match_expressions)
    return bool(term.match_fields or term.match_expressions) and fields and expressions


def _holds(expression: NodeExpression, value: str | None) -> bool:
    """An operator that is not known here is taken to hold: the scheduler knows better."""
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(value, expression)
        case _:
            return True


def _compares(value: str | None, expression: NodeExpression) -> bool:
    try:
        number, bound = int(value or ""), int(expression.values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if expression.operator == "Gt" else number < bound


def _tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(
        (not each.effect or each.effect == taint.effect)
        and (not each.key or each.key == taint.key)
        and (each.operator == "Exists" or (bool(each.key) and each.value == taint.value))
        for each in tolerations
    )
