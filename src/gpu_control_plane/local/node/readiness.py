"""When a kubelet that was just started can be relied on."""

import http.client

import msgspec

from gpu_control_plane.local.access import Access
from gpu_control_plane.local.node.configuration import KUBELET_HEALTH_PORT


def is_ready(access: Access, port: int, name: str, address: str, boot: str) -> bool:
    """Whether the kubelet is well, has reported this start of its machine as ready, and knows the pods it has to run.

    The last is not a given: a kubelet answers before it has heard of its pods, and denies them until then.
    """
    if not access.healthy(KUBELET_HEALTH_PORT, "/healthz", secure=False, host=address):
        return False
    node = f"/api/v1/nodes/{name}"
    try:
        status = _read(access, port, node, _Node).status
        known = _read(access, port, f"{node}/proxy/pods", _PodList).ids()
        bound = _read(access, port, f"/api/v1/pods?fieldSelector=spec.nodeName={name}", _PodList).ids()
    except (OSError, http.client.HTTPException):
        return False
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions)
    return ready and status.node_info.boot_id == boot and bound <= known


def _read[T](access: Access, port: int, path: str, kind: type[T]) -> T:
    answer = access.request(port, "GET", path)
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
