"""Which changes wake upgrades, and which nodes they concern."""

from collections.abc import Iterable
from typing import Final

from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.signal import Keyed
from gpu_control_plane.operator.driver_pods import is_driver, is_validator

SCHEDULE: Final = Key("schedule")
"""The one key of the scheduler."""


def the_schedule(_item: Keyed) -> Iterable[Key]:
    return (SCHEDULE,)


def node_changed(old: Node | None, new: Node | None) -> bool:
    return old is None or new is None or _of_interest(old) != _of_interest(new)


def node_of(pod: Pod) -> Iterable[Key]:
    return (Key(pod.spec.node_name),) if pod.spec.node_name else ()


def driver_or_validator(old: Pod | None, new: Pod | None) -> bool:
    """Whether the pod brings or checks a driver; other operands do not matter for upgrades."""
    return any(pod is not None and (is_driver(pod) or is_validator(pod)) for pod in (old, new))


def agent_changed(old: GPUNodeState | None, new: GPUNodeState | None) -> bool:
    """Whether our agent reports something new about the driver: that it has released it, or what it has checked."""
    return (
        old is None
        or new is None
        or old.status.quiesced != new.status.quiesced
        or old.status.validation != new.status.validation
        or old.status.driver != new.status.driver
    )


def _of_interest(node: Node) -> tuple[object, ...]:
    meta = node.metadata
    return meta.labels, meta.annotations, node.spec.unschedulable, node.ready, node.deleting
