"""Objects of Ray that wait, and caches that hold them."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube.client import EVERYTHING, Selection
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.ray.owned import RayPod
from gpu_control_plane.ray.waiting.lookup import WaitingLookup
from gpu_control_plane.ray.watched import Watched
from gpu_control_plane.rules.ray.gpus import LivePools

NOON: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)
NAMESPACE: Final = "research"
TEMPLATE: Final = {"spec": {"containers": [{"name": "ray", "image": "ray"}]}}


def cluster(name: str = "eval", *, labels: dict[str, str] | None = None, **status: Any) -> RayCluster:
    spec = {"headGroupSpec": {"template": TEMPLATE}}
    return _made(RayCluster, name, spec, status, labels=labels)


def job(name: str = "train", *, spec: dict[str, Any] | None = None, **status: Any) -> RayJob:
    return _made(RayJob, name, {"entrypoint": "true", **(spec or {})}, status)


def service(name: str = "serve", *, spec: dict[str, Any] | None = None, **status: Any) -> RayService:
    config = {"rayClusterConfig": {"headGroupSpec": {"template": TEMPLATE}}}
    return _made(RayService, name, {**config, **(spec or {})}, status)


def condition(kind: str, status: str, reason: str = "", message: str = "", *, minutes_ago: int = 5) -> dict[str, Any]:
    moment = NOON - timedelta(minutes=minutes_ago)
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": moment}


def worker(
    number: int = 1,
    *,
    of: str = "eval",
    group: str = "gpu",
    limits: dict[str, Any] | None = None,
    node: str = "",
    minutes_ago: int = 20,
    message: str = "",
    node_type: str = "worker",
) -> RayPod:
    """A pod of a cluster; without a node unless one is named."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": of, "uid": f"uid-{of}", "controller": True}
    asked = {"nvidia.com/gpu": 1} if limits is None else limits
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return msgspec.convert(
        {
            "metadata": {
                "name": f"{of}-{group}-worker-{number}",
                "namespace": NAMESPACE,
                "creationTimestamp": NOON - timedelta(minutes=minutes_ago),
                "labels": {"ray.io/cluster": of, "ray.io/group": group, "ray.io/node-type": node_type},
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": node, "containers": [{"name": "ray", "resources": {"limits": asked}}]},
            "status": {"conditions": [scheduled]} if not node else {},
        },
        RayPod,
    )


class Held[T: Object]:
    """As `Watched`, of objects that are given."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = tuple(items)
        self._indexes: dict[str, Callable[[T], Iterable[str]]] = {}

    def get(self, name: str, namespace: str | None) -> T | None:
        return next((each for each in self._items if (each.name, each.metadata.namespace) == (name, namespace)), None)

    def index(self, name: str, function: Callable[[T], Iterable[str]]) -> None:
        self._indexes[name] = function

    def by_index(self, index: str, value: str) -> list[T]:
        return [each for each in self._items if value in self._indexes[index](each)]

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)


def lookup(*items: Object) -> WaitingLookup:
    """What waits among these objects."""

    def caches[T: Object](kind: type[T], selection: Selection = EVERYTHING) -> Watched[T]:
        del selection
        return cast("Watched[T]", Held(each for each in items if isinstance(each, kind)))

    return WaitingLookup(caches, LivePools())


def _made[T: Object](
    kind: type[T], name: str, spec: dict[str, Any], status: dict[str, Any], labels: dict[str, str] | None = None
) -> T:
    created = NOON - timedelta(minutes=30)
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "creationTimestamp": created}
    return msgspec.convert({"metadata": {**metadata, "labels": labels or {}}, "spec": spec, "status": status}, kind)
