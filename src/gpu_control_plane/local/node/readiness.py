"""Whether a kubelet that was just started is ready for pods."""

import http.client

import msgspec

from gpu_control_plane.local.node.configuration import KUBELET_HEALTH_PORT
from gpu_control_plane.local.sync_client import SyncClient


def is_ready(client: SyncClient, port: int, name: str, address: str, boot: str) -> bool:
    """Whether the kubelet is healthy, has reported this boot of its machine as ready, and knows the pods bound to it.

    A kubelet is healthy before its pod watch is complete, and until then answers that its pods do not exist.
    """
    if not client.healthy(KUBELET_HEALTH_PORT, "/healthz", secure=False, host=address):
        return False
    node = f"/api/v1/nodes/{name}"
    try:
        status = _read(client, port, node, _Node).status
        known = _read(client, port, f"{node}/proxy/pods", _PodList).ids()
        bound = _read(client, port, f"/api/v1/pods?fieldSelector=spec.nodeName={name}", _PodList).ids()
    except (OSError, http.client.HTTPException):
        return False
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions)
    return ready and status.node_info.boot_id == boot and bound <= known


def _read[T](client: SyncClient, port: int, path: str, kind: type[T]) -> T:
    answer = client.request(port, "GET", path)
    if not answer.ok:
        raise OSError(f"the API server answered {answer.status}")
    return msgspec.json.decode(answer.body, type=kind)


class _Condition(msgspec.Struct):
    type: str
    status: str


class _NodeInfo(msgspec.Struct):
    boot_id: str = msgspec.field(default="", name="bootID")


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []
    node_info: _NodeInfo = msgspec.field(default_factory=_NodeInfo, name="nodeInfo")


class _Node(msgspec.Struct):
    status: _Status


class _Metadata(msgspec.Struct):
    uid: str


class _Pod(msgspec.Struct):
    metadata: _Metadata


class _PodList(msgspec.Struct):
    items: list[_Pod] | None = None

    def ids(self) -> set[str]:
        return {pod.metadata.uid for pod in self.items or ()}
