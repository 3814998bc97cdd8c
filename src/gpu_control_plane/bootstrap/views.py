"""A Pod as bootstrap looks at it: which program of a GPU node it is, where, and whether it works."""

from datetime import datetime, timedelta
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.nodefeature import NAMESPACE
from gpu_control_plane.bootstrap.operands import NVIDIA, OTHERS, OURS, Operand
from gpu_control_plane.kube import Object, Resource, Selection

_NAME: Final = "app.kubernetes.io/name"
_COMPONENT: Final = "app.kubernetes.io/component"
_APP: Final = "app"
_PRODUCT: Final = "gpu-control-plane"
_SAME_MOMENT: Final = timedelta(seconds=5)
"""How far apart the kubelet may write two times of one happening."""

OUR_PODS: Final = Selection(
    namespace=NAMESPACE, labels=f"{_NAME}={_PRODUCT},{_COMPONENT} in ({','.join(sorted(OURS))})"
)
"""Pods of our chart that run on GPU nodes."""
NVIDIA_PODS: Final = Selection(labels=f"{_APP} in ({','.join(sorted(NVIDIA))})")
"""Pods of NVIDIA's stack, whoever deploys it: a ClusterPolicy here, NVIDIA's own operator anywhere."""
OTHER_PODS: Final = Selection(labels=f"{_NAME} in ({','.join(sorted(OTHERS))})")
"""Pods of programs that are installed one by one."""


class _View(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Base of every part."""


class Waiting(_View, frozen=True, kw_only=True):
    reason: str = ""


class Terminated(_View, frozen=True, kw_only=True):
    finished_at: datetime | None = None


class ContainerState(_View, frozen=True, kw_only=True):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(_View, frozen=True, kw_only=True):
    name: str = ""
    ready: bool = False
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    """How it was before its last restart."""


class Container(_View, frozen=True, kw_only=True):
    args: tuple[str, ...] = ()


class PodSpec(_View, frozen=True, kw_only=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()


class PodCondition(_View, frozen=True, kw_only=True):
    type: str
    status: str = ""
    last_transition_time: datetime | None = None


class PodStatus(_View, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class OperandPod(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def operand(self) -> Operand | None:
        """The program it is. A pod of ours is known by our labels, whatever else it carries."""
        labels = self.metadata.labels
        if labels.get(_NAME) == _PRODUCT:
            return OURS.get(labels.get(_COMPONENT, ""))
        return NVIDIA.get(labels.get(_APP, "")) or OTHERS.get(labels.get(_NAME, ""))

    @property
    def over(self) -> bool:
        """Whether it has ended, or is about to: then it is nobody's source of anything."""
        return self.deleting or self.status.phase in ("Succeeded", "Failed")

    @property
    def ready(self) -> bool:
        held = self._condition("Ready")
        return held is not None and held.status == "True"

    @property
    def since(self) -> datetime | None:
        """Since when it has been ready, or has not."""
        held = self._condition("Ready")
        if held is not None and held.last_transition_time is not None:
            return held.last_transition_time
        return self.metadata.creation_timestamp

    @property
    def crashes(self) -> bool:
        """Whether one of its containers has ended since, or by that: a restart of last month explains nothing."""
        statuses = (*self.status.init_container_statuses, *self.status.container_statuses)
        ends = (status.last_state.terminated for status in statuses)
        moments = [end.finished_at for end in ends if end is not None and end.finished_at is not None]
        return bool(moments) and (self.since is None or max(moments) >= self.since - _SAME_MOMENT)

    @property
    def unscheduled(self) -> bool:
        held = self._condition("PodScheduled")
        return held is not None and held.status == "False"

    def _condition(self, kind: str) -> PodCondition | None:
        return next((held for held in self.status.conditions if held.type == kind), None)
