"""The decision about a RayService: one question after the other, each answered with writes and Events. Pure.

The order of the writes is the order of safety: pods that may get requests are labelled and Services point to a cluster
before the status says so, and the status names a cluster before it is made. Every write may be the last one before a
crash: what follows is decided again from what is there.
"""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from gpu_control_plane.api.ray.names import MANAGED_BY_MULTIKUEUE, Finalizer
from gpu_control_plane.api.ray.reasons import ServiceReason
from gpu_control_plane.api.ray.service import RayServiceStatus, ServedCluster, ServiceCondition
from gpu_control_plane.kube.conditions import is_true
from gpu_control_plane.ray.event_record import EventRecord
from gpu_control_plane.ray.service import conditions, deadlines, suspension
from gpu_control_plane.ray.service.actions import Action, Decision, RemoveFinalizer, WriteStatus, merged
from gpu_control_plane.ray.service.applications import statuses
from gpu_control_plane.ray.service.cluster_changes import (
    accepted_configurations,
    creation,
    deletion,
    expiries,
    next_deletion,
    refreshes,
    take_overs,
    unused_since_patches,
)
from gpu_control_plane.ray.service.conditions import ConditionInputs
from gpu_control_plane.ray.service.desired_cluster import Match
from gpu_control_plane.ray.service.events import ServiceEvent
from gpu_control_plane.ray.service.gateway_use import GATEWAY_CHECK, is_incremental, leaves_gateway, waits_for_gateway
from gpu_control_plane.ray.service.incremental import ALL
from gpu_control_plane.ray.service.roles import Roles, UpgradeMode, decide_roles, match_of
from gpu_control_plane.ray.service.snapshot import NO_CLUSTER, Snapshot
from gpu_control_plane.ray.service.traffic import gateway_route, head_labels, services, stale_services
from gpu_control_plane.ray.service.upgrade import plan_upgrade
from gpu_control_plane.ray.service.upgrade_plan import NextRoles, UpgradePlan, next_roles

_RUNNING: Final = "Running"
_SOONEST: Final = timedelta(milliseconds=50)
_GATEWAY_RECHECK: Final = timedelta(seconds=30)
"""While the Gateway API is not installed: an empty cache triggers no reconcile when its kinds appear."""


def decide(s: Snapshot) -> Decision:  # noqa: PLR0911 - one question after the other
    """What to do about a RayService."""
    service = s.service
    if service.spec.managed_by == MANAGED_BY_MULTIKUEUE:
        return Decision()
    if s.other_operator:
        if is_true(service.status.conditions, ServiceCondition.OTHER_OPERATOR_ACTIVE):
            return Decision()
        held = conditions.other_operator_reported(service, s.other_operator, s.now)
        return Decision(actions=(WriteStatus(status=replace(service.status, conditions=held)),))
    if service.deleting:
        # Garbage collection deletes its clusters and Services; the finalizer is KubeRay's.
        kept = Finalizer.SERVICE.value in service.metadata.finalizers
        return Decision(actions=(RemoveFinalizer(name=Finalizer.SERVICE.value),) if kept else ())
    if (decided := suspension.decide_suspension(s)) is not None:
        return decided
    if (status := suspension.resumed(s)) is not None:
        return Decision(
            actions=(_write(s, status),), events=(EventRecord(reason=ServiceEvent.RESUMED, note="it comes up again"),)
        )
    if taken := tuple(take_overs(s)):
        # Before the status gets this generation: whether the spec has changed is known from observedGeneration.
        return Decision(actions=taken)
    if s.problems:
        return _invalid(s)
    if (decided := _timed_out(s)) is not None:
        return decided
    return _run(s)


def _invalid(s: Snapshot) -> Decision:
    held = conditions.invalid(s.service, s.problems, s.now)
    endpoints = s.endpoints if s.backend else 0
    status = replace(s.service.status, conditions=held, service_status="", num_serve_endpoints=endpoints)
    ready = conditions.reason_of(s.service.status.conditions, ServiceCondition.READY)
    event = EventRecord(reason=ServiceEvent.INVALID, note=s.problems, action="Validate", warning=True)
    return Decision(actions=(_write(s, status),), events=(event,) if ready != ServiceReason.VALIDATION_FAILED else ())


def _timed_out(s: Snapshot) -> Decision | None:
    """The decision if it has not become ready in time: its clusters are deleted, and a corrected spec starts anew."""
    left = _time_left(s)
    over = left is not None and left <= timedelta()
    if not over and not deadlines.has_timed_out(s.service):
        return None
    deletes = tuple(deletion(view, "it did not come up in time") for view in s.clusters if not view.deleting)
    if not over:
        return Decision(actions=deletes)
    message = f"it did not come up within {deadlines.initializing_timeout(s.service)}: change the spec to try again"
    status = RayServiceStatus(conditions=conditions.timed_out(s.service, message, s.now))
    event = EventRecord(reason=ServiceEvent.TIMED_OUT, note=message, warning=True)
    return Decision(actions=(_write(s, status), *deletes), events=(event,))


def _time_left(s: Snapshot) -> timedelta | None:
    """How long it still has to become ready, counted from the creation of its newest cluster."""
    made = [view.cluster.metadata.creation_timestamp for view in s.clusters if not view.deleting]
    begun = max((moment for moment in made if moment is not None), default=None)
    return deadlines.time_left(s.service, begun, s.now) if begun is not None else None


def _run(s: Snapshot) -> Decision:
    if noted := tuple(accepted_configurations(s)):
        # Before anything else, so that an accepted configuration is not put again after a crash. The rest is decided
        # when the annotations are in the cache.
        return Decision(actions=noted)
    roles = decide_roles(s)
    plan = plan_upgrade(s, roles)
    after = next_roles(roles, plan)
    status = _status(s, roles, plan, after)
    begins = after.pending != s.pending_status.ray_cluster_name
    before: list[Action] = [
        *head_labels(s, roles),
        *services(s, roles, plan),
        *(deletion(view, "it is not wanted any more") for view in roles.drop if not view.deleting),
    ]
    patches = [*refreshes(s, roles, plan, after), *unused_since_patches(s, roles, after)]
    last: list[Action] = [
        *gateway_route(s, roles, after, status),
        *creation(s, roles),
        *merged(patches),
        *expiries(s, after),
        *stale_services(s),
    ]
    delays = [plan.again_in, next_deletion(s, after), _time_left(s)]
    if waits_for_gateway(s) or (is_incremental(s.service) and not s.gateway.served):
        delays.append(_GATEWAY_RECHECK if s.gateway.known else GATEWAY_CHECK)
    known = [delay for delay in delays if delay is not None]
    return Decision(
        actions=(*before, _write(s, status), *last),
        events=_events(s, roles, after, begins=begins),
        again_in=max(_SOONEST, min(known)) if known else None,
    )


def _status(s: Snapshot, roles: Roles, plan: UpgradePlan, after: NextRoles) -> RayServiceStatus:
    endpoints = s.endpoints if s.backend else 0
    inputs = ConditionInputs(
        active=after.active,
        pending=after.pending,
        endpoints=endpoints,
        back=roles.back and not after.undone,
        refused=roles.refused or _comes_next(s, after),
        progress=plan.progress,
        loss=plan.loss,
        config_refused=_config_refused(s, after),
    )
    held = conditions.running(s.service, inputs, s.now)
    active = _whole(s) if after.promoted or after.undone else plan.active
    pending = plan.pending
    if leaves_gateway(s) and not (roles.mode is UpgradeMode.INCREMENTAL and after.pending):
        kept = replace((active if after.active else pending) or NO_CLUSTER, target_capacity=ALL)
        active, pending = (kept, pending) if after.active else (active, kept)
    return RayServiceStatus(
        service_status=_RUNNING if is_true(held, ServiceCondition.READY) else "",
        num_serve_endpoints=endpoints,
        active_service_status=_served(s, after.active, active),
        pending_service_status=_served(s, after.pending, pending),
        conditions=held,
    )


def _comes_next(s: Snapshot, after: NextRoles) -> str:
    """Why the service is not up to date after a rollback, if the spec asks for a third cluster."""
    view = s.named(after.active) if after.undone else None
    return "it comes next" if view is not None and match_of(s, view) is Match.OTHER else ""


def _config_refused(s: Snapshot, after: NextRoles) -> str:
    view = s.named(after.active)
    return view.refused if view is not None else ""


def _whole(s: Snapshot) -> ServedCluster | None:
    """The share of a cluster that is the only one."""
    return ServedCluster(target_capacity=100, traffic_routed_percent=100) if is_incremental(s.service) else None


def _served(s: Snapshot, name: str, share: ServedCluster | None) -> ServedCluster | None:
    if not name:
        return None
    view = s.named(name)
    held = next((each for each in (s.active_status, s.pending_status) if each.ray_cluster_name == name), NO_CLUSTER)
    parts = share or NO_CLUSTER
    return ServedCluster(
        ray_cluster_name=name,
        ray_cluster_status=view.cluster.status if view is not None else None,
        application_statuses=statuses(view.details if view is not None else None, held),
        target_capacity=parts.target_capacity,
        traffic_routed_percent=parts.traffic_routed_percent,
        last_traffic_migrated_time=parts.last_traffic_migrated_time,
    )


def _events(s: Snapshot, roles: Roles, after: NextRoles, *, begins: bool) -> tuple[EventRecord, ...]:
    found: list[EventRecord] = [*roles.events] if roles.create or begins else []
    held = s.service.status.conditions
    if after.promoted and s.active_status.ray_cluster_name:
        found.append(
            EventRecord(reason=ServiceEvent.UPGRADE_COMPLETE, note=f"{after.active} answers; {roles.active} goes")
        )
    if after.undone:
        found.append(
            EventRecord(
                reason=ServiceEvent.ROLLBACK_COMPLETE, note=f"{after.active} answers as before; {roles.pending} goes"
            )
        )
    if begins and after.active and after.pending:
        found.append(
            EventRecord(
                reason=ServiceEvent.UPGRADE_STARTED, note=f"{after.pending} is to take over from {after.active}"
            )
        )
    if roles.back and not is_true(held, ServiceCondition.ROLLBACK_IN_PROGRESS):
        found.append(EventRecord(reason=ServiceEvent.ROLLBACK_STARTED, note=f"{roles.active} gets everything back"))
    if (
        roles.refused
        and not waits_for_gateway(s)
        and conditions.reason_of(held, ServiceCondition.UP_TO_DATE) != ServiceReason.NOT_CARRIED_OUT
    ):
        note = f"the change of spec.rayClusterConfig is not carried out: {roles.refused}"
        found.append(EventRecord(reason=ServiceEvent.NOT_CARRIED_OUT, note=note, warning=True))
    for view in filter(None, (s.named(after.active), s.named(after.pending))):
        if view.refused:
            note = f"Ray Serve of {view.name} did not take its configuration: {view.refused}"
            found.append(
                EventRecord(reason=ServiceEvent.FAILED_UPDATE_APPLICATIONS, note=note, action="Update", warning=True)
            )
    return tuple(found)


def _write(s: Snapshot, status: RayServiceStatus) -> WriteStatus:
    return WriteStatus(
        status=replace(status, last_update_time=s.now, observed_generation=s.service.metadata.generation)
    )
