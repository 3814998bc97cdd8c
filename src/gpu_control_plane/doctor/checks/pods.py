"""Pods that should have cards and have not: those that wait, those that failed, and those that were never created."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import GROUP
from gpu_control_plane.api.pod import Pod, WaitingPod
from gpu_control_plane.doctor.check import Found, Group, check
from gpu_control_plane.doctor.findings import Evidence, Mend, MendKind, Severity, command_in, reference
from gpu_control_plane.doctor.snapshot import Snapshot, Source
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.pools.explain.cluster import ClusterSnapshot
from gpu_control_plane.pools.explain.explanation import Cause, Explanation
from gpu_control_plane.pools.explain.pod import explain_pod
from gpu_control_plane.pools.explain.refusal import explain_refusal

LONG: Final = timedelta(minutes=10)
"""How long a pod may wait for a card before that is a finding."""
REFUSED_LATELY: Final = timedelta(minutes=20)
"""What makes pods tries again at least this often: a refusal that is older is over."""

_ADMISSION_ERROR: Final = "UnexpectedAdmissionError"
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?")
_EXPLAINED: Final = 50
"""Pods that are explained, those that have waited longest: with 40,000 cards each takes a moment."""
_GPU_CAUSES: Final = frozenset(
    {Cause.QUOTA, Cause.NO_ACCESS, Cause.NO_SUCH_POOL, Cause.POOL_DELETED, Cause.MAINTENANCE, Cause.TOO_MANY}
)


def _explain(pod: Pod) -> str:
    return f"kubectl gpu explain pod {pod.name} -n {pod.metadata.namespace}"


def _age(pod: Pod, now: datetime) -> timedelta:
    return now - (pod.metadata.creation_timestamp or now)


def _duration(age: timedelta) -> str:
    minutes = int(age.total_seconds() // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"  # noqa: PLR2004


def _pools_by_resource(snapshot: Snapshot) -> dict[str, GPUPool]:
    return {name: pool for pool in snapshot.pools for name in pool.resource_names}


@check(
    "pod-unknown-resource",
    "A pod asks for a resource that no pool offers",
    Group.PODS,
    Severity.WARNING,
    Source.WAITING,
    Source.POOLS,
)
def pod_unknown_resource(snapshot: Snapshot) -> Iterator[Found]:
    """The policies refuse such pods when they are made; one that is there was made before its pool went."""
    pools = _pools_by_resource(snapshot)
    for pod in snapshot.waiting:
        for resource in sorted(pod.extended_resource_names):
            if resource.startswith(f"{GROUP}/") and resource not in pools:
                yield Found(
                    about=f"pod {pod.key}",
                    sentence=f"It asks for {resource}, and there is no such pool: it will never start.",
                    evidence=Evidence(reference(pod), "spec.containers[].resources.limits", resource),
                    fix=_explain(pod),
                )


@check(
    "pod-waiting",
    "Pods have waited long for a card",
    Group.PODS,
    Severity.WARNING,
    Source.WAITING,
    Source.POOLS,
    Source.CARDS,
    Source.STATES,
    Source.NODES,
)
def pod_waiting(snapshot: Snapshot) -> Iterator[Found]:
    """One finding for each cause and pool, with the pod that has waited longest."""
    pools = _pools_by_resource(snapshot)
    late = [
        pod
        for pod in snapshot.waiting
        if _age(pod, snapshot.now) > LONG and pod.active and pod.extended_resource_names & pools.keys()
    ]
    late.sort(key=lambda pod: _age(pod, snapshot.now), reverse=True)
    if not late:
        return
    cluster = ClusterSnapshot(
        pools=snapshot.pools,
        cards={card.name: card for card in snapshot.cards},
        states={state.name: state for state in snapshot.states},
        nodes={node.name: node for node in snapshot.nodes},
        waiting=snapshot.waiting,
    )
    grouped: dict[str, tuple[WaitingPod, Explanation, list[WaitingPod]]] = {}
    for pod in late[:_EXPLAINED]:
        found = explain_pod(cluster.pod(pod))
        if found is not None:
            grouped.setdefault(found.action, (pod, found, []))[2].append(pod)
    for longest, found, pods in grouped.values():
        others = f" {counted(len(pods) - 1, 'more pod')} for the same reason." if len(pods) > 1 else ""
        yield Found(
            about=f"pod {longest.key}",
            sentence=f"It has waited for {_duration(_age(longest, snapshot.now))}: {found.sentence}.{others}",
            evidence=Evidence(reference(longest), "cause", found.cause),
            fix=command_in(found.admin, _explain(longest)),
        )


@check(
    "pod-admission-error",
    "A pod failed because its node could not give it a card",
    Group.PODS,
    Severity.WARNING,
    Source.FAILED,
    Source.POOLS,
)
def pod_admission_error(snapshot: Snapshot) -> Iterator[Found]:
    """The kubelet never tries such a pod again; what made it has replaced it, and the failed one stays behind."""
    pools = _pools_by_resource(snapshot)
    for pod in snapshot.failed:
        if pod.status.reason != _ADMISSION_ERROR or not pod.extended_resource_names & pools.keys():
            continue
        owned = pod.controller is not None
        after = "What made it has made another; this one is a leftover." if owned else "Nothing makes it anew."
        yield Found(
            about=f"pod {pod.key}",
            sentence=f"The kubelet of {pod.spec.node_name or 'its node'} could not give it a card: "
            f"{pod.status.message or 'it does not say why'}. {after}",
            evidence=Evidence(reference(pod), "status.reason", _ADMISSION_ERROR),
            fix=f"kubectl -n {pod.metadata.namespace} delete pod {pod.name}",
            mend=Mend(MendKind.DELETE_FAILED_POD, pod.key, pod.metadata.uid) if owned else None,
        )


@check("pod-refused", "Pods are not created", Group.PODS, Severity.WARNING, Source.REFUSALS)
def pod_refused(snapshot: Snapshot) -> Iterator[Found]:
    """By a quota, or because their namespace may not use the pool: what makes them goes on to try."""
    told: set[tuple[str, Cause]] = set()
    for event in sorted(snapshot.refusals, key=lambda each: each.seen_at, reverse=True):
        about = event.regarding
        if about is None or snapshot.now.astimezone(UTC) - event.seen_at > REFUSED_LATELY:
            continue
        namespace = event.metadata.namespace or ""
        if _NAME.fullmatch(about.name) is None or not about.kind.isalpha():
            continue  # No controller writes such an Event: a tenant may, and its words would end in a command.
        found = explain_refusal(event.note, namespace)
        workload = f"{about.kind} {namespace}/{about.name}"
        mentions_us = GROUP in event.note or bool(found.pool)
        if found.cause not in _GPU_CAUSES or not mentions_us or (workload, found.cause) in told:
            continue
        told.add((workload, found.cause))
        yield Found(
            about=workload,
            sentence=f"Its pods are not created: {found.sentence}.",
            evidence=Evidence(f"Event/{event.key}", "reason", f"{event.reason}, {found.cause}"),
            fix=command_in(found.admin, f"kubectl gpu explain pod {about.name} -n {namespace}"),
        )
