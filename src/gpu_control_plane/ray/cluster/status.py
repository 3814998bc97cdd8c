"""The status of a RayCluster. Pure.

What KubeRay writes is written as KubeRay writes it, also where that says little: `state` stays `ready` once it was. The
conditions WorkersReady, Valid and CapacitySufficient say how things are now.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

from gpu_control_plane.api.ray.cluster import (
    UNLIMITED,
    ClusterCondition,
    ClusterState,
    HeadInfo,
    RayCluster,
    RayClusterStatus,
    UpgradeType,
)
from gpu_control_plane.api.ray.reasons import ClusterReason
from gpu_control_plane.kube.conditions import TRUE, condition, find, is_true
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.ray.cluster.pod_state import finds_no_room, is_worker, progress
from gpu_control_plane.ray.demand import (
    desired_amounts,
    least_group_pods,
    most_group_pods,
    quantity_text,
    worker_pods,
)
from gpu_control_plane.ray.owned import OwnedService, RayPod

_TPU: Final = "google.com/tpu"
_GROUPS_IN_MESSAGE: Final = 20


class Failure(msgspec.Struct, frozen=True):
    """A pod could not be made or deleted."""

    reason: str
    """KubeRay's word: FailedCreateWorkerPod."""
    message: str


class PendingCondition(msgspec.Struct, frozen=True):
    """A condition before it is one; without a status it is unknown."""

    status: bool | None
    reason: str
    message: str = ""


class StatusSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a status follows from."""

    cluster: RayCluster
    pods: tuple[RayPod, ...]
    """All that belong to the cluster, also those that are being deleted."""
    head_service: OwnedService | None
    gpus: int = 0
    """GPUs of all pods that are asked for."""
    failure: Failure | None = None
    problem: str = ""
    """Why the spec cannot be carried out."""
    problem_reason: str = ""
    error: str = ""
    """Why an object beside the pods is not there."""
    waiting: Mapping[str, str] = {}
    """Why workers do not come, by group: the ends of sentences."""
    capacity: PendingCondition | None = None
    """Whether pools could ever serve it; None where no pool is asked for."""
    now: datetime


def cluster_status(snapshot: StatusSnapshot) -> RayClusterStatus:
    """The status of a cluster that is not being deleted."""
    cluster, pods, now = snapshot.cluster, snapshot.pods, snapshot.now
    held, spec = cluster.status, cluster.spec
    workers = [pod for pod in pods if is_worker(pod) and not pod.deleting]
    head = _head(pods)
    state = _state(snapshot, workers, head)
    amounts = desired_amounts(spec)
    times = dict(held.state_transition_times)
    if state is not None and state != held.state:
        times[str(state)] = now.replace(microsecond=0)
    error = snapshot.problem or snapshot.error or (snapshot.failure.message if snapshot.failure is not None else "")
    return RayClusterStatus(
        state=state,
        reason=error,
        desired_cpu=_amount(amounts, "cpu"),
        desired_memory=_amount(amounts, "memory"),
        desired_gpu=str(snapshot.gpus),
        desired_tpu=_amount(amounts, _TPU),
        ready_worker_replicas=sum(pod.ready for pod in workers),
        available_worker_replicas=sum(pod.running for pod in workers),
        desired_worker_replicas=_bounded(worker_pods(spec)),
        min_worker_replicas=_bounded(sum(map(least_group_pods, spec.worker_group_specs))),
        max_worker_replicas=_bounded(sum(map(most_group_pods, spec.worker_group_specs))),
        head=_head_info(head, snapshot.head_service),
        endpoints=_endpoints(snapshot.head_service),
        last_update_time=now.replace(microsecond=0),
        state_transition_times=times,
        observed_generation=cluster.metadata.generation,
        conditions=_conditions(snapshot, workers, head),
    )


def _head(pods: Iterable[RayPod]) -> RayPod | None:
    heads = [pod for pod in pods if pod.is_head and not pod.deleting]
    return max(heads, key=progress, default=None)


def _state(snapshot: StatusSnapshot, workers: Sequence[RayPod], head: RayPod | None) -> ClusterState | None:
    cluster = snapshot.cluster
    if cluster.spec.suspend:
        return ClusterState.SUSPENDED if not snapshot.pods else cluster.status.state
    up = (
        head is not None
        and not (snapshot.failure or snapshot.problem or snapshot.error)
        and len(workers) == worker_pods(cluster.spec)
        and all(_is_up(pod) for pod in (head, *workers))
    )
    if up:
        return ClusterState.READY
    # Resumed, and not up yet: KubeRay leaves the word, although it is not suspended any more.
    held = cluster.status.state
    return None if held is ClusterState.SUSPENDED else held


def _is_up(pod: RayPod) -> bool:
    """Whether it runs, and nothing says that it is not ready."""
    ready = pod.condition("Ready")
    return pod.running and (ready is None or ready.status == TRUE)


def _conditions(snapshot: StatusSnapshot, workers: Sequence[RayPod], head: RayPod | None) -> tuple[Condition, ...]:
    leaving = any(pod.is_head and pod.deleting for pod in snapshot.pods)
    said: dict[ClusterCondition, PendingCondition] = {
        ClusterCondition.HEAD_POD_READY: _head_ready(head, leaving=leaving)
    }
    suspending, suspended = _suspension(snapshot)
    said[ClusterCondition.PROVISIONED] = _provisioned(snapshot, suspended=suspended is not None and suspended.status)
    if snapshot.failure is not None:
        said[ClusterCondition.REPLICA_FAILURE] = PendingCondition(
            True, snapshot.failure.reason, snapshot.failure.message
        )
    if suspending is not None:
        said[ClusterCondition.SUSPENDING] = suspending
    if suspended is not None:
        said[ClusterCondition.SUSPENDED] = suspended
    said[ClusterCondition.VALID] = (
        PendingCondition(False, snapshot.problem_reason, snapshot.problem)
        if snapshot.problem
        else PendingCondition(True, ClusterReason.VALID)
    )
    said[ClusterCondition.WORKERS_READY] = _workers_ready(snapshot, workers)
    if snapshot.capacity is not None:
        said[ClusterCondition.CAPACITY] = snapshot.capacity
    held, generation = snapshot.cluster.status.conditions, snapshot.cluster.metadata.generation
    ours = tuple(
        condition(held, kind, each.status, each.reason, each.message, generation=generation, now=snapshot.now)
        for kind, each in said.items()
    )
    # A condition that another program keeps here is not ours to remove.
    return (*ours, *(other for other in held if other.type not in _OURS))


_OURS: Final = frozenset(str(kind) for kind in ClusterCondition)


def _head_ready(head: RayPod | None, *, leaving: bool) -> PendingCondition:
    if head is None:
        why = "the next head comes when the last one is gone, which is being deleted" if leaving else "there is no head"
        return PendingCondition(False, ClusterReason.HEAD_POD_NOT_FOUND, why)
    ready = head.condition("Ready")
    if ready is None:
        return PendingCondition(False, head.status.reason or ClusterReason.UNKNOWN, head.status.message)
    if ready.status == TRUE:
        return PendingCondition(True, ClusterReason.HEAD_POD_RUNNING_AND_READY, "")
    reason, message = ready.reason or ClusterReason.UNKNOWN, ready.message
    if reason == "ContainersNotReady":
        for container in head.status.container_statuses:
            stopped = container.state.waiting or container.state.terminated
            if stopped is not None and stopped.reason:
                return PendingCondition(False, stopped.reason, stopped.message or message)
    return PendingCondition(False if ready.status != "Unknown" else None, reason, message)


def _provisioned(snapshot: StatusSnapshot, *, suspended: bool | None) -> PendingCondition:
    """True once all pods that there were ran at once, until it is suspended."""
    held = find(snapshot.cluster.status.conditions, ClusterCondition.PROVISIONED)
    if held is not None and held.status == TRUE and not suspended:
        return PendingCondition(True, held.reason, held.message)
    workers = [pod for pod in snapshot.pods if is_worker(pod) and not pod.deleting]
    complete = _head(snapshot.pods) is not None and len(workers) >= worker_pods(snapshot.cluster.spec)
    if not suspended and complete and all(_is_up(pod) for pod in snapshot.pods):
        return PendingCondition(True, ClusterReason.ALL_PODS_READY, "all pods are running and ready for the first time")
    return PendingCondition(False, ClusterReason.PROVISIONING, "pods are being provisioned")


def _suspension(snapshot: StatusSnapshot) -> tuple[PendingCondition | None, PendingCondition | None]:
    """Suspending and Suspended; never both are true. A suspension that has begun is carried to its end; one that is
    not asked for any more, whether by false or by leaving it out, has ended."""
    held, wanted = snapshot.cluster.status.conditions, bool(snapshot.cluster.spec.suspend)
    suspending, suspended = ClusterCondition.SUSPENDING, ClusterCondition.SUSPENDED
    off = PendingCondition(False, ClusterReason.SUSPENDING), PendingCondition(False, ClusterReason.SUSPENDED)
    on = PendingCondition(True, ClusterReason.SUSPENDING), PendingCondition(True, ClusterReason.SUSPENDED)
    if is_true(held, suspended):
        return (off[0], on[1]) if wanted else off
    if is_true(held, suspending) or wanted:
        return (on[0], off[1]) if snapshot.pods else (off[0], on[1])
    known = find(held, suspending) is not None or find(held, suspended) is not None
    return off if known else (None, None)


def _workers_ready(snapshot: StatusSnapshot, workers: Sequence[RayPod]) -> PendingCondition:
    wanted, ready = worker_pods(snapshot.cluster.spec), sum(pod.ready for pod in workers)
    if snapshot.cluster.spec.suspend:
        return PendingCondition(False, ClusterReason.WORKERS_SUSPENDED, "it is suspended")
    if snapshot.waiting:
        return PendingCondition(False, ClusterReason.WORKERS_WAITING, _waits(snapshot.waiting))
    if ready == wanted and len(workers) == wanted:
        return PendingCondition(True, ClusterReason.ALL_WORKERS_READY, "")
    if ready > wanted or len(workers) > wanted:
        return PendingCondition(
            True, ClusterReason.MORE_WORKERS, f"{counted(len(workers), 'worker')} for {wanted} asked for"
        )
    without = sum(finds_no_room(pod) for pod in workers)
    why = f", and no node has room for {without}" if without else ""
    if without and _rolls(snapshot.cluster):
        why += ": a rolling change goes on when they are ready"
    return PendingCondition(
        False, ClusterReason.WORKERS_NOT_READY, f"{ready} of {counted(wanted, 'worker')} ready{why}"
    )


def _rolls(cluster: RayCluster) -> bool:
    return cluster.spec.upgrade_strategy is not None and cluster.spec.upgrade_strategy.type is UpgradeType.ROLLING


def _waits(waiting: Mapping[str, str]) -> str:
    first = [f"group {group}: {why}" for group, why in sorted(waiting.items())[:_GROUPS_IN_MESSAGE]]
    more = len(waiting) - len(first)
    return "; ".join([*first, f"{counted(more, 'more group')} waiting"] if more else first)


def _head_info(head: RayPod | None, service: OwnedService | None) -> HeadInfo | None:
    if head is None and service is None:
        return None
    pod_ip = head.status.pod_ip if head is not None else ""
    service_ip = str(service.spec.get("clusterIP") or "") if service is not None else ""
    return HeadInfo(
        pod_ip=pod_ip,
        pod_name=head.name if head is not None else "",
        service_ip=pod_ip if service_ip == "None" else service_ip,
        service_name=service.name if service is not None else "",
    )


def _endpoints(service: OwnedService | None) -> dict[str, str]:
    ports: Sequence[Mapping[str, Any]] = (service.spec.get("ports") or ()) if service is not None else ()
    return {port["name"]: str(_reached_at(port)) for port in ports if port.get("name")}


def _reached_at(port: Mapping[str, Any]) -> object:
    target = port.get("targetPort")
    return port.get("nodePort") or (target if isinstance(target, int) and target else port.get("port", ""))


def _amount(amounts: Mapping[str, Decimal], name: str) -> str:
    return quantity_text(amounts.get(name, Decimal(0)))


def _bounded(count: int) -> int:
    return min(count, UNLIMITED)
