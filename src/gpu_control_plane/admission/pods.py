"""The review of a Pod that is about to be created and asks for cards of a pool. Pure.

It refuses only what waiting cannot cure; a Pod for which nothing is free now is let in and waits. Access and quotas are
held by the API server itself: this review may be skipped at any time, and nothing but comfort is lost.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from gpu_control_plane.admission.placement import Malformed, add_hints, member_object
from gpu_control_plane.api.gpupool import GPUPool, PoolPhase
from gpu_control_plane.api.names import Annotation, Label, PoolCondition
from gpu_control_plane.kube.admission import AdmissionResponse, allow, change, deny
from gpu_control_plane.kube.conditions import FALSE, find
from gpu_control_plane.kube.json_patch import Json
from gpu_control_plane.rules.hopeless_requests import Hopeless, why_hopeless

_UNKNOWN: Final = (
    "The pod asks for {resource}, which no GPU pool offers. What there is: kubectl get gpupools -o wide. "
    "A pool that was just made can be used in a moment."
)


class Offer(msgspec.Struct, frozen=True):
    """The pool behind a resource, and how much of the resource one node can give."""

    pool: GPUPool
    largest: int
    """Units of the node that has the most of them; 0 while no node has any."""


def review_pod(
    asked: Mapping[str, int], offers: Mapping[str, Offer], document: dict[str, Json], token: str
) -> AdmissionResponse:
    """Refuse the Pod, or let it in with what makes it land well; `document`, the whole of it, is edited for that.

    `offers` are by resource, and `token` names the Pod's reservation: at this moment it has neither a UID nor, maybe, a
    name. Reviewing what was reviewed already changes nothing.
    """
    for resource, units in asked.items():
        refusal = _refusal(resource, units, offers.get(resource))
        if refusal is not None:
            return deny(refusal)
    used = {name: offers[name].pool for name in asked if name in offers}
    if not used:
        return allow()
    main = used[max(used, key=lambda name: asked[name])]
    try:
        metadata = member_object(document, "metadata")
        member_object(metadata, "annotations").setdefault(Annotation.RESERVATION.value, token)
        label = member_object(metadata, "labels").setdefault(Label.POOL.value, main.name)
        add_hints(member_object(document, "spec"), main, used.values())
    except Malformed:
        return allow()  # The API server refuses it.
    return change(document, warnings=tuple(_warnings(asked, used, main, label)))


def _refusal(resource: str, units: int, offer: Offer | None) -> str | None:
    """Why the Pod could never start, and what to do."""
    pool = offer.pool if offer is not None else None
    largest = offer.largest if offer is not None else 0
    hopeless = why_hopeless(
        resource,
        units,
        offered=pool.resource_names if pool is not None else None,
        deleting=pool is not None and pool.deleting,
        largest=largest,
    )
    if pool is None:
        return _UNKNOWN.format(resource=resource) if hopeless is Hopeless.NO_POOL else None
    match hopeless:
        case Hopeless.NOT_OFFERED:
            parts = ", ".join(pool.resource_names)
            return f"The pod asks for {resource}, but the GPU pool {pool.name} offers {parts}. Ask for one of these."
        case Hopeless.DELETING:
            return f"The GPU pool {pool.name} is being deleted. Ask for another one: kubectl get gpupools."
        case _ if pool.status.phase is PoolPhase.MAINTENANCE:
            return (
                f"The GPU pool {pool.name} is in maintenance{_because(pool)}. "
                f"Create the pod again when `kubectl get gpupool {pool.name}` shows Ready."
            )
        case Hopeless.TOO_LARGE:
            return (
                f"The pod asks for {units} units of {resource}, and no node has more than {largest}. "
                f"Ask for at most {largest}, or share the work among several pods."
            )
    return None


def _warnings(asked: Mapping[str, int], used: Mapping[str, GPUPool], main: GPUPool, label: Json) -> Iterator[str]:
    if label != main.name:
        yield (
            f"the label {Label.POOL} says {label}, but the pod asks for the GPU pool {main.name}: "
            "remove the label, so that pods of the pool are placed with regard to each other"
        )
    for resource, pool in used.items():
        capacity = next((counted for counted in pool.status.capacity if counted.name == resource), None)
        if pool.status.phase is PoolPhase.MISCONFIGURED:
            yield f"the GPU pool {pool.name} is misconfigured, so the pod may have to wait{_because(pool)}"
        elif capacity is None or capacity.available < asked[resource]:
            free, total = (capacity.available, capacity.total) if capacity else (0, 0)
            yield f"the pod waits: it asks for {asked[resource]} of {resource}, and {free} of {total} are free"


def _because(pool: GPUPool) -> str:
    """What the pool says about why it is not ready."""
    ready = find(pool.status.conditions, PoolCondition.READY)
    return f": {ready.message}" if ready is not None and ready.status == FALSE and ready.message else ""
