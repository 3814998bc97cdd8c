"""Why a pod waits: the questions, in the order in which their answers matter. Pure.

What the pool lacks comes first, then what is in use, then what keeps the pod from the nodes that have free units.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.pools.explain.explanation import Cause, Explanation
from gpu_control_plane.pools.explain.node_fit import Misfit, misfit
from gpu_control_plane.pools.explain.pool_request import PoolRequest
from gpu_control_plane.pools.explain.snapshot import PodSnapshot

_GATED = "SchedulingGated"
_NAMED = 3
"""Nodes that a sentence names."""


def explain_pod(snapshot: PodSnapshot) -> Explanation | None:
    """The first true cause for which the pod waits; None for a pod that asks for no card of a pool."""
    asked = snapshot.pod.extended_resources
    for resource in asked:
        if resource not in snapshot.pools and resource.startswith(f"{GROUP}/"):
            return _no_such_pool(snapshot, resource)
    requests = [
        PoolRequest(snapshot, snapshot.pools[name], name, count)
        for name, count in asked.items()
        if name in snapshot.pools
    ]
    if not requests:
        return None
    scheduled = snapshot.pod.condition("PodScheduled")
    if scheduled is not None and scheduled.reason == _GATED:
        return Explanation(
            cause=Cause.GATED,
            sentence="the pod has scheduling gates: the scheduler does not look at it yet",
            user="whoever set spec.schedulingGates has to remove them",
        )
    for request in requests:
        if (found := request.explained()) is not None:
            return found
    candidates = _shared_nodes(requests)
    return _nodes(snapshot, requests, candidates) if candidates else _apart(requests)


def _no_such_pool(snapshot: PodSnapshot, resource: str) -> Explanation:
    close = get_close_matches(resource, snapshot.resources(), n=1)
    hint = f"write {close[0]}" if close else "correct the name"
    return Explanation(
        cause=Cause.NO_SUCH_POOL,
        resource=resource,
        sentence=f"there is no pool with the resource {resource}",
        user=f"{hint} in resources.limits: `kubectl get gpupools -o wide` shows the resources there are",
    )


def _apart(requests: list[PoolRequest]) -> Explanation:
    """Each pool has enough for the pod, but no node has enough of all of them."""
    parts = " and ".join(str(request) for request in requests)
    return Explanation(
        cause=Cause.NOT_ON_ONE_NODE,
        resource=requests[0].resource,
        pool=requests[0].name,
        sentence=f"{parts} asked for on one node: each is free somewhere, but not on the same node",
        user="wait until they are, or ask for one pool in a pod",
    )


def _shared_nodes(requests: list[PoolRequest]) -> list[str]:
    return sorted(set[str].intersection(*(request.free_nodes() for request in requests)))


def _nodes(snapshot: PodSnapshot, requests: list[PoolRequest], candidates: list[str]) -> Explanation:
    """These nodes have what the pod asks for: what keeps it from them."""
    parts = " and ".join(str(request) for request in requests)
    found: dict[str, Misfit] = {}
    for name in candidates:
        reason = misfit(snapshot.pod, snapshot.node(name))
        if reason is None:
            return _scheduler(snapshot, requests[0], name, parts)
        found[name] = reason
    by_cause: dict[Cause, list[str]] = {}
    for name, reason in found.items():
        by_cause.setdefault(reason.cause, []).append(name)
    cause = max(by_cause, key=lambda each: len(by_cause[each]))
    first = by_cause[cause][0]
    have = "1 node has" if len(candidates) == 1 else f"{counted(len(candidates), 'node')} have"
    why = ", ".join(_of_nodes(each, names, found) for each, names in by_cause.items())
    user, admin = _way_out(cause, first, found[first].detail)
    return Explanation(
        cause=cause,
        resource=requests[0].resource,
        pool=requests[0].name,
        sentence=f"{have} {parts} free, but {why}",
        user=user,
        admin=admin,
    )


def _of_nodes(cause: Cause, nodes: list[str], found: Mapping[str, Misfit]) -> str:
    rest = len(nodes) - _NAMED
    names = ", ".join(nodes[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    detail = found[nodes[0]].detail
    one = len(nodes) == 1
    match cause:
        case Cause.CORDONED:
            return f"{names} {'is' if one else 'are'} cordoned"
        case Cause.SELECTOR:
            return f"{names} {'does' if one else 'do'} not match the pod's nodeSelector or affinity ({detail})"
        case Cause.TAINT:
            return f"{names} {'has' if one else 'have'} a taint that the pod does not tolerate ({detail})"
        case Cause.CPU_OR_MEMORY:
            return f"{names} {'has' if one else 'have'} less {detail} than the pod asks for"
        case _:
            return f"{names} {'is' if one else 'are'} not ready"


def _way_out(cause: Cause, node: str, detail: str) -> tuple[str, str]:
    """For the user, and for an administrator."""
    match cause:
        case Cause.CORDONED:
            return "it starts when a node takes pods again", f"`kubectl uncordon {node}`"
        case Cause.SELECTOR:
            return f"correct the pod's nodeSelector or affinity ({detail})", f"`kubectl get node {node} --show-labels`"
        case Cause.TAINT:
            return f"add a toleration for {detail}", f"`kubectl taint node {node} {detail}-` lets every pod in"
        case Cause.CPU_OR_MEMORY:
            return f"ask for less {detail}", f"`kubectl describe node {node}`"
        case _:
            return "it starts when the node is ready", f"`kubectl describe node {node}`"


def _scheduler(snapshot: PodSnapshot, request: PoolRequest, node: str, parts: str) -> Explanation:
    """A node has free units and fits, as far as can be seen: what the scheduler says decides."""
    said = snapshot.pod.condition("PodScheduled")
    words = said.message if said is not None else ""
    lacking = next((each for each in ("cpu", "memory") if f"Insufficient {each}" in words), None)
    if lacking is not None:
        return Explanation(
            cause=Cause.CPU_OR_MEMORY,
            resource=request.resource,
            pool=request.name,
            sentence=f"node {node} has {parts} free, but other pods use the {lacking} that the pod needs",
            user=f"ask for less {lacking}, or wait until other pods end",
            admin=f"`kubectl describe node {node}`",
            facts=tuple(_quoted(words)),
            certain=False,
        )
    return Explanation(
        cause=Cause.SCHEDULER,
        resource=request.resource,
        pool=request.name,
        sentence=f"node {node} has {parts} free, and nothing of what is known here keeps the pod from it",
        user="if it does not start within seconds, the scheduler's own message says why",
        facts=tuple(_quoted(words)),
        certain=False,
    )


def _quoted(words: str) -> Iterator[str]:
    if words:
        yield f"the scheduler says: {words}"
