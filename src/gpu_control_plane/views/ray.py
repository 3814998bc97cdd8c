"""Ray clusters beside the cards that their pods hold: what each wants, has, and leaves idle.

Agents report which pod holds a card, by name; KubeRay names the pods of a cluster after it.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.ray.view import RayClusterView
from gpu_control_plane.kube.quantities import parse_quantity
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.loads import Load, load_of


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
    created: datetime | None


def ray_rows(fleet: Fleet, clusters: Iterable[RayClusterView]) -> list[RayRow]:
    """The clusters by namespace and name."""
    by_key = {(each.metadata.namespace or "", each.name): each for each in clusters}
    names: dict[str, list[str]] = defaultdict(list)
    for namespace, name in by_key:
        names[namespace].append(name)

    def owner(namespace: str, pod: str) -> tuple[str, str] | None:
        """The cluster of a pod: of two whose names begin alike, the longer one."""
        found = [name for name in names.get(namespace, ()) if pod.startswith(f"{name}-")]
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


def _row(cluster: RayClusterView, cards: dict[str, GPUDevice], waiting: list[str]) -> RayRow:
    status = cluster.status
    return RayRow(
        namespace=cluster.metadata.namespace or "",
        name=cluster.name,
        state=status.state or "starting",
        reason=status.reason,
        version=cluster.spec.ray_version,
        workers=status.available_worker_replicas,
        workers_wanted=status.desired_worker_replicas,
        gpus_wanted=int(parse_quantity(status.desired_gpu)),
        cards=tuple(sorted(cards)),
        idle=sum(load_of(card) is Load.HELD_IDLE for card in cards.values()),
        waiting=tuple(sorted(waiting)),
        created=cluster.metadata.creation_timestamp,
    )
