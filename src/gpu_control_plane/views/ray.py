"""Ray clusters, jobs and services beside the cards that their pods hold: what each wants, has, and waits for.

Agents report which pod holds a card, by name; pods of a cluster are named after it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.ray.cluster import ClusterCondition
from gpu_control_plane.api.ray.service import ServiceCondition
from gpu_control_plane.api.ray.view import RayClusterView, RayJobView, RayServiceView
from gpu_control_plane.kube.conditions import FALSE, TRUE, find, is_true
from gpu_control_plane.kube.objects import Condition
from gpu_control_plane.kube.quantities import parse_quantity
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.ray.names import pod_beginning
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.loads import Load, load_of

_RUNNING: Final = "Running"
_WELL: Final = frozenset({_RUNNING, "Succeeded", "Complete", "Suspended"})


class RayRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A Ray cluster. Fields are added, never renamed or removed."""

    namespace: str
    name: str
    state: str
    reason: str
    version: str
    workers: int
    workers_wanted: int
    gpus_wanted: int
    cards: tuple[str, ...]
    """Cards that its pods hold."""
    idle: int
    """Those of them that do nothing."""
    waiting: tuple[str, ...]
    """Its pods that wait for cards."""
    why: str
    """What it waits for; empty if it does not wait, or nothing says so."""
    next: str
    """The command that says more; empty if all is well."""
    created: datetime | None


class RayUserRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A RayJob or a RayService. Fields are added, never renamed or removed."""

    kind: str
    namespace: str
    name: str
    state: str
    clusters: tuple[str, ...]
    """The clusters that it has, the one that works first."""
    cards: int
    """Cards that their pods hold."""
    waiting: int
    """Pods of theirs that wait for cards."""
    why: str
    next: str
    created: datetime | None


def ray_rows(fleet: Fleet, clusters: Iterable[RayClusterView]) -> list[RayRow]:
    """The clusters by namespace and name."""
    by_key = {(each.metadata.namespace or "", each.name): each for each in clusters}
    names: dict[str, list[str]] = defaultdict(list)
    for namespace, name in by_key:
        names[namespace].append(name)

    def owner(namespace: str, pod: str) -> tuple[str, str] | None:
        """The cluster of a pod: of two whose names begin alike, the longer one."""
        found = [name for name in names.get(namespace, ()) if pod.startswith(pod_beginning(name))]
        return (namespace, max(found, key=len)) if found else None

    held: dict[tuple[str, str], dict[str, GPUDevice]] = defaultdict(dict)
    for card in fleet.cards.values():
        for user in card.status.used_by:
            if (key := owner(user.namespace, user.pod)) is not None:
                held[key][card.name] = card
    waiting: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in fleet.waiting:
        if (key := owner(pod.metadata.namespace or "", pod.name)) is not None:
            waiting[key].append(pod.name)
    return [_row(each, held[key], waiting[key]) for key, each in sorted(by_key.items())]


def job_rows(jobs: Iterable[RayJobView], clusters: Iterable[RayRow]) -> list[RayUserRow]:
    """The RayJobs by namespace and name; `clusters` are the rows of their clusters."""
    rows = {(each.namespace, each.name): each for each in clusters}
    return sorted((_job(each, rows) for each in jobs), key=lambda row: (row.namespace, row.name))


def service_rows(services: Iterable[RayServiceView], clusters: Iterable[RayRow]) -> list[RayUserRow]:
    """The RayServices by namespace and name; `clusters` are the rows of their clusters."""
    rows = {(each.namespace, each.name): each for each in clusters}
    return sorted((_service(each, rows) for each in services), key=lambda row: (row.namespace, row.name))


type _Rows = Mapping[tuple[str, str], RayRow]


def _job(job: RayJobView, rows: _Rows) -> RayUserRow:
    status = job.status
    state = status.job_deployment_status or "New"
    if state == _RUNNING and status.job_status:
        state = status.job_status.capitalize()
    names = (status.ray_cluster_name,) if status.ray_cluster_name else ()
    said = ": ".join(filter(None, (status.reason, status.message)))
    return _user(job, state, names, rows, said, well=state in _WELL)


def _service(service: RayServiceView, rows: _Rows) -> RayUserRow:
    status = service.status
    ready = find(status.conditions, ServiceCondition.READY)
    served = (status.active_service_status, status.pending_service_status)
    names = tuple(each.ray_cluster_name for each in served if each is not None and each.ray_cluster_name)
    if is_true(status.conditions, ServiceCondition.SUSPENDED):
        return _user(service, "Suspended", names, rows, "", well=True)
    well = ready is not None and ready.status == TRUE
    upgrading = is_true(status.conditions, ServiceCondition.UPGRADE_IN_PROGRESS)
    state = ("Upgrading" if upgrading else "Ready") if well else "NotReady"
    return _user(service, state, names, rows, _said(ready) if ready is not None else "", well=well)


def _user(
    item: RayJobView | RayServiceView, state: str, names: tuple[str, ...], rows: _Rows, said: str, *, well: bool
) -> RayUserRow:
    namespace = item.metadata.namespace or ""
    held = [rows[namespace, name] for name in names if (namespace, name) in rows]
    describe = f"kubectl -n {namespace} describe {item.resource.kind.lower()} {item.name}"
    return RayUserRow(
        kind=item.resource.kind,
        namespace=namespace,
        name=item.name,
        state=state,
        clusters=names,
        cards=sum(len(row.cards) for row in held),
        waiting=sum(len(row.waiting) for row in held),
        why="" if well else "; ".join(filter(None, (said, *(row.why for row in held)))),
        next="" if well else next((row.next for row in held if row.waiting), describe),
        created=item.metadata.creation_timestamp,
    )


def _why(cluster: RayClusterView, waiting: list[str]) -> str:
    """What keeps it from being up, by its conditions; KubeRay has fewer of them."""
    held = cluster.status.conditions
    parts = [
        _said(found)
        for kind in (ClusterCondition.VALID, ClusterCondition.CAPACITY)
        if (found := find(held, kind)) is not None and found.status == FALSE
    ]
    failed = find(held, ClusterCondition.REPLICA_FAILURE)
    if failed is not None and failed.status == TRUE:
        parts.append(_said(failed))
    if waiting:
        parts.append(f"{counted(len(waiting), 'pod')} wait{'s' if len(waiting) == 1 else ''} for cards")
    head = find(held, ClusterCondition.HEAD_POD_READY)
    if head is not None and head.status == FALSE and not is_true(held, ClusterCondition.SUSPENDED):
        parts.append(f"the head is not ready ({_said(head)})")
    return "; ".join(parts)


def _said(condition: Condition) -> str:
    return f"{condition.reason}: {condition.message}" if condition.message else condition.reason


def _row(cluster: RayClusterView, cards: dict[str, GPUDevice], waiting: list[str]) -> RayRow:
    status, namespace = cluster.status, cluster.metadata.namespace or ""
    why = _why(cluster, waiting)
    describe = f"kubectl -n {namespace} describe raycluster {cluster.name}" if why else ""
    return RayRow(
        namespace=namespace,
        name=cluster.name,
        state=status.state or "starting",
        reason=status.reason,
        version=cluster.spec.ray_version,
        workers=status.available_worker_replicas,
        workers_wanted=status.desired_worker_replicas,
        gpus_wanted=int(parse_quantity(status.desired_gpu or "0")),
        cards=tuple(sorted(cards)),
        idle=sum(load_of(card) is Load.HELD_IDLE for card in cards.values()),
        waiting=tuple(sorted(waiting)),
        why=why,
        next=f"kubectl gpu explain pod {min(waiting)} -n {namespace}" if waiting else describe,
        created=cluster.metadata.creation_timestamp,
    )
