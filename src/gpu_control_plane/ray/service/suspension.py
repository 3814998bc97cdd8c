"""Suspension of a RayService: first in the status, then completed, whatever the spec says meanwhile. Pure."""

from msgspec.structs import replace

from gpu_control_plane.api.ray.service import RayServiceStatus, ServiceCondition
from gpu_control_plane.kube.conditions import is_true
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.ray.event_record import EventRecord
from gpu_control_plane.ray.owned import is_owned
from gpu_control_plane.ray.service import conditions
from gpu_control_plane.ray.service.actions import Decision, Delete, WriteStatus
from gpu_control_plane.ray.service.events import ServiceEvent
from gpu_control_plane.ray.service.gateway_use import GATEWAY_CHECK, waits_for_gateway
from gpu_control_plane.ray.service.snapshot import Snapshot


def decide_suspension(s: Snapshot) -> Decision | None:
    """What to do about `spec.suspend`; None if the service is to run."""
    held, spec = s.service.status.conditions, s.service.spec
    is_suspending = is_true(held, ServiceCondition.SUSPENDING)
    if is_true(held, ServiceCondition.SUSPENDED) and not is_suspending:
        status = replace(s.service.status, conditions=conditions.suspended(s.service, s.now))
        # Objects that were created just before the suspension may reach the caches only now.
        return Decision(actions=(_write(s, status), *_deletes(s))) if spec.suspend else None
    if not is_suspending and not spec.suspend:
        return None
    left = _left(s)
    unknown = waits_for_gateway(s)
    if is_suspending and not left and not unknown:
        status = RayServiceStatus(conditions=conditions.suspended(s.service, s.now))
        return Decision(
            actions=(_write(s, status),), events=(EventRecord(reason=ServiceEvent.SUSPENDED, note="all is gone"),)
        )
    names = ", ".join(sorted(f"{item.resource.kind} {item.name}" for item in left)) or "what there is of a Gateway"
    status = replace(
        s.service.status,
        conditions=conditions.suspending(s.service, f"waiting for {names}" if is_suspending else "", s.now),
        service_status="",
        num_serve_endpoints=0,
    )
    return Decision(actions=(_write(s, status), *_deletes(s)), again_in=GATEWAY_CHECK if unknown else None)


def resumed(s: Snapshot) -> RayServiceStatus | None:
    """The status to begin again with, if it has been suspended."""
    if not is_true(s.service.status.conditions, ServiceCondition.SUSPENDED):
        return None
    return RayServiceStatus(conditions=conditions.resumed(s.service, s.now))


def _deletes(s: Snapshot) -> tuple[Delete, ...]:
    return tuple(Delete(item=item) for item in _left(s) if not item.deleting)


def _left(s: Snapshot) -> tuple[Object, ...]:
    gateway = [item for item in (s.gateway.gateway, s.gateway.route) if item is not None]
    clusters = [view.cluster for view in s.clusters]
    own = [service for service in s.services if is_owned(service, s.service)]
    return (*clusters, *own, *gateway)


def _write(s: Snapshot, status: RayServiceStatus) -> WriteStatus:
    return WriteStatus(
        status=replace(status, last_update_time=s.now, observed_generation=s.service.metadata.generation)
    )
