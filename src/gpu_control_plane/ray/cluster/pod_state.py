"""What a pod of a RayCluster is good for: whether it is lost, how far it has come, and what it was made from. Pure."""

from datetime import UTC, datetime
from enum import IntEnum
from typing import Final

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.api.pod import ContainerStatus
from gpu_control_plane.api.ray.names import Annotation, Label, NodeType
from gpu_control_plane.ray.cluster.manifests.autoscaler import AUTOSCALER
from gpu_control_plane.ray.owned import RayPod

GANG_GATE: Final = f"{GROUP}/ray-group"
"""The scheduling gate of workers that start together."""
_UNSCHEDULABLE: Final = "Unschedulable"
_LONG_AGO: Final = datetime.fromtimestamp(0, UTC)


class Progress(IntEnum):
    """How far a pod has come; of workers that are one too many, those that have come least far go first."""

    GATED = 0
    UNSCHEDULED = 1
    STARTING = 2
    RUNNING = 3
    READY = 4


def progress(pod: RayPod) -> Progress:
    if is_gated(pod):
        return Progress.GATED
    if pod.ready:
        return Progress.READY
    if pod.running:
        return Progress.RUNNING
    return Progress.STARTING if pod.spec.node_name else Progress.UNSCHEDULED


def is_gated(pod: RayPod) -> bool:
    """Whether it waits for the rest of its group."""
    return any(gate.name == GANG_GATE for gate in pod.spec.scheduling_gates)


def finds_no_room(pod: RayPod) -> bool:
    """Whether the scheduler has found no node that has room for it."""
    scheduled = pod.condition("PodScheduled")
    return scheduled is not None and scheduled.reason == _UNSCHEDULABLE


def is_lost(pod: RayPod) -> bool:
    """Whether it will not do any more work: it has ended, or its Ray container has and is not started again."""
    if pod.ended:
        return True
    if not pod.running or pod.spec.restart_policy != "Never":
        return False
    ray = ray_container(pod)
    return ray is not None and ray.state.terminated is not None


def ray_container(pod: RayPod) -> ContainerStatus | None:
    """The status of the container that runs Ray: the first one of the spec."""
    name = pod.spec.containers[0].name if pod.spec.containers else None
    return next((status for status in pod.status.container_statuses if status.name == name), None)


def why_lost(pod: RayPod) -> str:
    """What the kubelet or a controller has said about a lost pod."""
    ray = ray_container(pod)
    ended = ray.state.terminated if ray is not None else None
    said = pod.status.message or (ended.message if ended is not None else "")
    word = pod.status.reason or (ended.reason if ended is not None else "")
    code = f"exit code {ended.exit_code}" if ended is not None else ""
    return ", ".join(part for part in (pod.status.phase, word, code, said) if part)


def runs_autoscaler(pod: RayPod) -> bool:
    """Whether it is a head that was made with Ray's autoscaler beside it."""
    beside = any(container.name == AUTOSCALER for container in pod.spec.containers)
    return pod.is_head and beside and not pod.deleting and not pod.ended


def made(pod: RayPod) -> datetime:
    return pod.metadata.creation_timestamp or _LONG_AGO


def template_hash(pod: RayPod) -> str:
    return pod.metadata.annotations.get(Annotation.TEMPLATE_HASH, "")


def replica_name(pod: RayPod) -> str:
    return pod.metadata.labels.get(Label.REPLICA_NAME, "")


def replica_index(pod: RayPod) -> int | None:
    return _number(pod.metadata.labels.get(Label.REPLICA_INDEX, ""))


def host_index(pod: RayPod) -> int | None:
    return _number(pod.metadata.labels.get(Label.HOST_INDEX, ""))


def is_worker(pod: RayPod) -> bool:
    return pod.metadata.labels.get(Label.NODE_TYPE) == NodeType.WORKER


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
