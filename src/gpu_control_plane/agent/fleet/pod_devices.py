"""What a pod asks of the devices of its node, what it was given, and how that is written into the pod itself.

The devices are a condition in the pod's status. It is at once the kubelet's checkpoint, read back after a restart, and
the sign for which KWOK waits before it starts the pod: a pod can neither run without its devices nor be given others
later. Only the status can hold it: whoever creates a pod could forge an annotation.
"""

import contextlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.agent.units import ContainerDevices
from gpu_control_plane.agent.views import UNEXPECTED_ADMISSION, PodContainer, PodView
from gpu_control_plane.kube.quantities import parse_quantity

ALLOCATED: Final = "simulation.gpu.deckhouse.io/DevicesAllocated"
"""Condition of a Pod on a simulated node: its devices are chosen, so it may start. The message names them."""
_SIDECAR: Final = "Always"


class Request(msgspec.Struct, frozen=True):
    """So many devices of a resource for one container."""

    container: str
    resource: str
    count: int


class Grant(msgspec.Struct, frozen=True, order=True):
    """The devices that a container got."""

    container: str
    resource: str
    ids: tuple[str, ...]


class Shortage(msgspec.Struct, frozen=True):
    """A pod was bound to a node that cannot give it its devices."""

    resource: str
    wanted: int
    available: int

    def __str__(self) -> str:
        return (
            f"the pod was bound here for {self.wanted} of {self.resource}, but {self.available} can be handed out;"
            " the node offered more when the pod was scheduled"
        )


def requests(pod: PodView) -> tuple[Request, ...]:
    """The devices of each container; zeros are left out.

    Containers that run together hold devices of their own. An init container uses those of the others before them
    and adds to the pod only what it needs beyond their sum.
    """
    init = [container for container in pod.spec.init_containers if container.restart_policy != _SIDECAR]
    sidecars = [container for container in pod.spec.init_containers if container.restart_policy == _SIDECAR]
    together = [request for container in (*sidecars, *pod.spec.containers) for request in _limits(container)]
    return (*together, *_beyond(together, init))


def grants(pod: PodView) -> tuple[Grant, ...] | None:
    """What the pod was given; None while nothing was decided, or when the condition makes no sense."""
    for condition in pod.status.conditions:
        if condition.type == ALLOCATED and condition.status == "True":
            with contextlib.suppress(msgspec.DecodeError):
                return msgspec.json.decode(condition.message, type=tuple[Grant, ...])
    return None


def container_devices(pod: PodView, given: Iterable[Grant]) -> tuple[ContainerDevices, ...]:
    """The pod's devices as the kubelet's pod-resources API would list them."""
    namespace = pod.metadata.namespace or ""
    return tuple(ContainerDevices(namespace, pod.name, each.container, each.resource, each.ids) for each in given)


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    status: str
    reason: str
    message: str
    last_transition_time: datetime


class _Identity(msgspec.Struct, frozen=True):
    uid: str


class _Allocated(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...]


class _Refused(msgspec.Struct, frozen=True):
    phase: str
    reason: str
    message: str


class PodApplyConfiguration(msgspec.Struct, frozen=True):
    """What the kubelet writes into a pod; the uid keeps it away from a later pod of the same name."""

    metadata: _Identity
    status: _Allocated | _Refused


def allocated(pod: PodView, given: Sequence[Grant], now: datetime) -> PodApplyConfiguration:
    """The pod has its devices and may start."""
    message = msgspec.json.encode(sorted(given)).decode()
    condition = _Condition(ALLOCATED, "True", "DevicesChosen", message, now.replace(microsecond=0))
    return PodApplyConfiguration(_Identity(pod.metadata.uid), _Allocated((condition,)))


def refused(pod: PodView, why: Shortage) -> PodApplyConfiguration:
    """The pod fails for good; its controller replaces it."""
    sentence = f"Pod was rejected: {why}."
    return PodApplyConfiguration(_Identity(pod.metadata.uid), _Refused("Failed", UNEXPECTED_ADMISSION, sentence))


def _limits(container: PodContainer) -> list[Request]:
    asked = (
        (name, int(parse_quantity(amount)))
        for name, amount in sorted(container.resources.limits.items())
        if is_extended(name)
    )
    return [Request(container.name, name, count) for name, count in asked if count]


def is_extended(resource: str) -> bool:
    """Whether a resource is one that device plugins serve, by Kubernetes' rules for names."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def _beyond(together: Sequence[Request], init: Sequence[PodContainer]) -> list[Request]:
    most: dict[str, Request] = {}
    for request in (request for container in init for request in _limits(container)):
        if request.resource not in most or most[request.resource].count < request.count:
            most[request.resource] = request
    extra = []
    for resource, request in sorted(most.items()):
        missing = request.count - sum(other.count for other in together if other.resource == resource)
        if missing > 0:
            extra.append(Request(request.container, resource, missing))
    return extra
