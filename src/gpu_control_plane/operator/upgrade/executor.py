"""Carries out one action on a node: a patch, evictions, or the deletion of the driver pod; and records an Event of it.

Every write of a Node, and the deletion of a driver pod, carries the resourceVersion it was decided on.
"""

import structlog

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, StackEvent
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import ApiError, NotFound
from gpu_control_plane.kube.events import EventRecorder
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.operator.upgrade.actions import DeleteDriverPod, EvictPods, NodePatch
from gpu_control_plane.operator.upgrade.evictor import Evictor
from gpu_control_plane.operator.upgrade.node_view import NodeView

_log = structlog.get_logger(component="operator.upgrade")


class ActionExecutor:
    """Writes for upgrades. `namespace` is that of the driver pods."""

    def __init__(self, client: Client, events: EventRecorder, evictor: Evictor, namespace: str) -> None:
        self._client = client
        self._events = events
        self._evictor = evictor
        self._namespace = namespace

    async def is_current(self, node: Node) -> bool:
        """Whether the API server has the node in the state that an action was decided on. A patch of the Node would be
        refused if not; requests for pods are not. If not, the watch is about to deliver the change."""
        try:
            live = await self._client.get(Node, node.name)
        except NotFound:
            return False
        return live.metadata.uid == node.metadata.uid and _upgrade_state(live) == _upgrade_state(node)

    async def patch(self, node: Node, view: NodeView, action: NodePatch) -> Node:
        version = node.metadata.resource_version
        written = await self._client.patch(Node, node.name, action.body(view), resource_version=version)
        if action.state is not None:
            self._evictor.forget(node.name)
            _log.info("driver upgrade", node=node.name, state=action.state.value, why=action.note)
        self._record(node, action)
        return written

    async def evict(self, node: Node, action: EvictPods) -> None:
        self._record(node, action)
        await gather_all(self._evict_one(node, pod) for pod in action.pods)

    async def delete_driver_pod(self, node: Node, action: DeleteDriverPod) -> None:
        """Delete the driver pod as it was read: if it has changed, a `Conflict` has the node looked at again."""
        pod = action.pod
        try:
            await self._client.delete(
                Pod, pod.name, self._namespace, uid=pod.uid, resource_version=pod.resource_version
            )
        except NotFound:
            pass  # it is gone; the watch is about to say so
        except ApiError:
            self._evictor.answered(node.name)
            raise
        else:
            self._record(node, action)
        self._evictor.accepted(node.name, pod.uid)

    async def _evict_one(self, node: Node, pod: Pod) -> None:
        refusal = await self._evictor.evict(node.name, pod)
        if refusal is not None:
            note = f"{pod.key} was not evicted: {refusal.why}. It is tried again"
            self._events.warning(node, StackEvent.DRIVER_UPGRADE, note, action="Evict")

    def _record(self, node: Node, action: NodePatch | EvictPods | DeleteDriverPod) -> None:
        """Record an Event of what has just been done to the node, if there is something to say."""
        if not action.note:
            return
        warning = not isinstance(action, EvictPods) and action.warning
        record = self._events.warning if warning else self._events.normal
        record(node, StackEvent.DRIVER_UPGRADE, action.note, action="Upgrade")


def _upgrade_state(node: Node) -> tuple[str, bool]:
    return node.metadata.labels.get(NodeLabel.UPGRADE_STATE, ""), node.spec.unschedulable
