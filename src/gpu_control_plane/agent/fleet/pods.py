"""What a pod asks of the devices of its node, what it was given, and how that is written into the pod itself.

The choice of cards is a condition in the pod's status. It is at once the kubelet's checkpoint, read back after a
restart, and the sign for which KWOK waits before it starts the pod: a pod can neither run without its cards nor be
given others later. Only the status can hold it: whoever creates a pod could forge an annotation.
"""

import contextlib
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from gpu_control_plane.agent.fleet.placement import Grant, Need, Shortage
from gpu_control_plane.agent.views import ALLOCATED, UNEXPECTED_ADMISSION, Container, Pod
from gpu_control_plane.api.gpudevice import User


def needs(pod: Pod) -> tuple[Need, ...]:
    """The devices of each container; zeros are left out.

    Containers that run together hold devices of their own. An init container uses those of the others before them
    and adds to the pod only what it needs beyond their sum.
    """
    starters = [container for container in pod.spec.init_containers if container.restart_policy != "Always"]
    sidecars = [container for container in pod.spec.init_containers if container.restart_policy == "Always"]
    together = [need for container in (*sidecars, *pod.spec.containers) for need in _asks(container)]
    return (*together, *_beyond(together, starters))


def grants(pod: Pod) -> tuple[Grant, ...] | None:
    """What the pod was given; None while nothing was decided, or when somebody wrote nonsense over it."""
    for condition in pod.status.conditions:
        if condition.type == ALLOCATED and condition.status == "True":
            with contextlib.suppress(msgspec.DecodeError):
                return msgspec.json.decode(condition.message, type=tuple[Grant, ...])
    return None


def users(pod: Pod, given: Iterable[Grant]) -> dict[str, User]:
    """The cards of a pod, each with the entry that names its container."""
    return {
        card: User(
            namespace=pod.metadata.namespace or "",
            pod=pod.name,
            container=grant.container,
            resource=grant.resource,
            units=1,
        )
        for grant in given
        for card in grant.cards
    }


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


class PodAnswer(msgspec.Struct, frozen=True):
    """What the kubelet writes into a pod; the uid keeps it away from a later pod of the same name."""

    metadata: _Identity
    status: _Allocated | _Refused


def allocated(pod: Pod, given: Sequence[Grant], now: datetime) -> PodAnswer:
    """The pod has its devices and may start."""
    message = msgspec.json.encode(sorted(given)).decode()
    condition = _Condition(ALLOCATED, "True", "DevicesChosen", message, now.replace(microsecond=0))
    return PodAnswer(_Identity(pod.metadata.uid), _Allocated((condition,)))


def refused(pod: Pod, why: Shortage) -> PodAnswer:
    """The pod fails for good; its controller replaces it."""
    sentence = f"Pod was rejected: {why}."
    return PodAnswer(_Identity(pod.metadata.uid), _Refused("Failed", UNEXPECTED_ADMISSION, sentence))


def _asks(container: Container) -> list[Need]:
    asked = ((name, _count(amount)) for name, amount in sorted(container.resources.limits.items()) if is_extended(name))
    return [Need(container.name, name, count) for name, count in asked if count]


def is_extended(resource: str) -> bool:
    """Whether a resource is one that device plugins serve, by Kubernetes' rules for names."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def _count(amount: str) -> int:
    """Whole numbers, as the API server demands; a thousand is written `1k`."""
    return int(amount) if amount.isdecimal() else int(amount.removesuffix("k")) * 1000


def _beyond(together: Sequence[Need], starters: Sequence[Container]) -> list[Need]:
    most: dict[str, Need] = {}
    for need in (need for container in starters for need in _asks(container)):
        if need.resource not in most or most[need.resource].count < need.count:
            most[need.resource] = need
    extra = []
    for resource, need in sorted(most.items()):
        missing = need.count - sum(other.count for other in together if other.resource == resource)
        if missing > 0:
            extra.append(Need(need.container, resource, missing))
    return extra
