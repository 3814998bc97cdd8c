"""What now? One question after the other about a RayService, each answered with writes and sentences. Pure.

The order of the writes is the order of safety: pods that may get requests are labelled and Services point to a cluster
before the status says so, and the status names a cluster before it is made. Every write may be the last one before a
crash: what follows is decided again from what is there.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gpu_control_plane.api.ray.names import MANAGED_BY_MULTIKUEUE, Annotation, Finalizer
from gpu_control_plane.api.ray.reasons import ServiceReason
from gpu_control_plane.api.ray.service import RayServiceStatus, ServedCluster, ServiceCondition
from gpu_control_plane.kube.conditions import is_true
from gpu_control_plane.ray.cluster.manifests import ClusterContext
from gpu_control_plane.ray.names import serve_service_name
from gpu_control_plane.ray.options import OWN_VERSIONS
from gpu_control_plane.ray.owned import OwnedService, is_owned
from gpu_control_plane.ray.service import backend, conditions, deadlines, gateway, suspension
from gpu_control_plane.ray.service.actions import (
    Action,
    CreateCluster,
    Decision,
    Delete,
    Ensure,
    LabelHead,
    PatchCluster,
    RemoveFinalizer,
    Told,
    WriteStatus,
    merged,
)
from gpu_control_plane.ray.service.applications import remembered, statuses
from gpu_control_plane.ray.service.conditions import Standing
from gpu_control_plane.ray.service.desired_cluster import (
    Marks,
    Match,
    cluster_manifest,
    is_scaled,
    scale_mark,
    wanted_groups,
    with_replicas,
)
from gpu_control_plane.ray.service.handover import replica_units
from gpu_control_plane.ray.service.incremental import ALL
from gpu_control_plane.ray.service.roles import (
    Roles,
    Way,
    decide_roles,
    deletion_delay,
    is_foreign,
    is_incremental,
    leaves_gateway,
    marks,
    match_of,
    unused_since,
    waits_for_gateway,
)
from gpu_control_plane.ray.service.snapshot import NOBODY, ClusterView, Snapshot
from gpu_control_plane.ray.service.upgrade import Course, chart

_RUNNING: Final = "Running"
_GATEWAY_CHECK: Final = timedelta(seconds=1)
_GATEWAY_RECHECK: Final = timedelta(seconds=30)
"""A cache that is complete and empty wakes nobody."""


def decide(s: Snapshot) -> Decision:  # noqa: PLR0911 - one question after the other
    """What to do about a RayService."""
    service = s.service
    if service.spec.managed_by == MANAGED_BY_MULTIKUEUE:
        return Decision()
    if s.other_operator:
        if is_true(service.status.conditions, ServiceCondition.OTHER_OPERATOR_ACTIVE):
            return Decision()
        held = conditions.looked_on(service, s.other_operator, s.now)
        return Decision(actions=(WriteStatus(status=replace(service.status, conditions=held)),))
    if service.deleting:
        # All that belongs to it goes with it; the finalizer is KubeRay's.
        kept = Finalizer.SERVICE.value in service.metadata.finalizers
        return Decision(actions=(RemoveFinalizer(name=Finalizer.SERVICE.value),) if kept else ())
    if (decided := suspension.decide_suspension(s)) is not None:
        return decided
    if (status := suspension.resumed(s)) is not None:
        return Decision(actions=(_write(s, status),), told=(Told(reason="Resumed", note="it comes up again"),))
    if taken := tuple(_taken_over(s)):
        # Before a status says that this spec has been seen: that is how a change is told from none.
        return Decision(actions=taken)
    if s.problems:
        return _invalid(s)
    if (decided := _timed_out(s)) is not None:
        return decided
    return _run(s)


def context_of(s: Snapshot, view: ClusterView) -> ClusterContext:
    return ClusterContext(cluster=view.cluster, options=s.options)


def _invalid(s: Snapshot) -> Decision:
    held = conditions.invalid(s.service, s.problems, s.now)
    status = replace(s.service.status, conditions=held, service_status="")
    ready = conditions.reason_of(s.service.status.conditions, ServiceCondition.READY)
    told = Told(reason="InvalidRayServiceSpec", note=s.problems, action="Validate", warning=True)
    return Decision(actions=(_write(s, status),), told=(told,) if ready != ServiceReason.VALIDATION_FAILED else ())


def _timed_out(s: Snapshot) -> Decision | None:
    """Whether it has not come up in time: its clusters go then, and a corrected spec begins anew."""
    left = _time_left(s)
    over = left is not None and left <= timedelta()
    if not over and not deadlines.has_timed_out(s.service):
        return None
    deletes = tuple(_deleted(view, "it did not come up in time") for view in s.clusters if not view.deleting)
    if not over:
        return Decision(actions=deletes)
    message = f"it did not come up within {deadlines.initializing_timeout(s.service)}: change the spec to try again"
    status = RayServiceStatus(conditions=conditions.timed_out(s.service, message, s.now))
    told = Told(reason="InitializingTimeout", note=message, warning=True)
    return Decision(actions=(_write(s, status), *deletes), told=(told,))


def _time_left(s: Snapshot) -> timedelta | None:
    """How long it has to come up, since its newest cluster was made: a corrected spec has the whole time."""
    made = [view.cluster.metadata.creation_timestamp for view in s.clusters if not view.deleting]
    begun = max((moment for moment in made if moment is not None), default=None)
    return deadlines.time_left(s.service, begun, s.now) if begun is not None else None


def _run(s: Snapshot) -> Decision:
    if noted := tuple(_remembered(s)):
        # Before anything else, so that what was accepted is not put again after a crash. What follows from it is
        # decided when it is seen.
        return Decision(actions=noted)
    roles = decide_roles(s)
    course = chart(s, roles)
    after = _after(roles, course)
    status = _status(s, roles, course, after)
    begins = after.pending != s.pending_status.ray_cluster_name
    before: list[Action] = [
        *_head_labels(s, roles),
        *_services(s, roles, course),
        *(_deleted(view, "it is not wanted any more") for view in roles.drop if not view.deleting),
    ]
    patches = [*_refreshed(s, roles, course, after), *_marked_unused(s, roles, after)]
    last: list[Action] = [
        *_route(s, roles, after, status),
        *_created(s, roles),
        *merged(patches),
        *_expired(s, after),
        *_stale_services(s),
    ]
    moments = [course.again_in, _next_deletion(s, after), _time_left(s)]
    if waits_for_gateway(s) or (is_incremental(s.service) and not s.gateway.served):
        moments.append(_GATEWAY_RECHECK if s.gateway.known else _GATEWAY_CHECK)
    waits = [moment.total_seconds() for moment in moments if moment is not None]
    return Decision(
        actions=(*before, _write(s, status), *last),
        told=_told(s, roles, after, begins=begins),
        again_in=max(0.05, min(waits)) if waits else None,
    )


class _After(msgspec.Struct, frozen=True, kw_only=True):
    """The roles as the status is to have them."""

    active: str = ""
    pending: str = ""
    promoted: bool = False
    undone: bool = False


def _after(roles: Roles, course: Course) -> _After:
    if not course.complete or not roles.pending:
        return _After(active=roles.active, pending=roles.pending)
    if roles.back:
        return _After(active=roles.active, undone=True)
    return _After(active=roles.pending, promoted=True)


def _status(s: Snapshot, roles: Roles, course: Course, after: _After) -> RayServiceStatus:
    endpoints = s.endpoints if s.backend else 0
    standing = Standing(
        active=after.active,
        pending=after.pending,
        endpoints=endpoints,
        back=roles.back and not after.undone,
        refused=roles.refused or _comes_next(s, after),
        progress=course.progress,
        loss=course.loss,
        config_refused=_config_refused(s, after),
    )
    held = conditions.running(s.service, standing, s.now)
    share = _whole(s) if after.promoted or after.undone else course.active
    if leaves_gateway(s):
        share = replace(share or NOBODY, target_capacity=ALL)
    return RayServiceStatus(
        service_status=_RUNNING if is_true(held, ServiceCondition.READY) else "",
        num_serve_endpoints=endpoints,
        active_service_status=_served(s, after.active, share),
        pending_service_status=_served(s, after.pending, course.pending),
        conditions=held,
    )


def _comes_next(s: Snapshot, after: _After) -> str:
    """Why the cluster that has just got everything back is not what the spec asks for."""
    view = s.named(after.active) if after.undone else None
    return "it comes next" if view is not None and match_of(s, view) is Match.OTHER else ""


def _config_refused(s: Snapshot, after: _After) -> str:
    view = s.named(after.active)
    return view.refused if view is not None else ""


def _whole(s: Snapshot) -> ServedCluster | None:
    """The share of a cluster that is alone."""
    return ServedCluster(target_capacity=100, traffic_routed_percent=100) if is_incremental(s.service) else None


def _served(s: Snapshot, name: str, share: ServedCluster | None) -> ServedCluster | None:
    if not name:
        return None
    view = s.named(name)
    held = next((each for each in (s.active_status, s.pending_status) if each.ray_cluster_name == name), NOBODY)
    parts = share or NOBODY
    return ServedCluster(
        ray_cluster_name=name,
        ray_cluster_status=view.cluster.status if view is not None else None,
        application_statuses=statuses(view.details if view is not None else None, held),
        target_capacity=parts.target_capacity,
        traffic_routed_percent=parts.traffic_routed_percent,
        last_traffic_migrated_time=parts.last_traffic_migrated_time,
    )


def _head_labels(s: Snapshot, roles: Roles) -> Iterable[Action]:
    """Let requests go to a head whose proxy takes them. Before the proxy has been heard of, nothing is changed."""
    for view in filter(None, (s.named(roles.active), s.named(roles.pending))):
        head = view.head
        if head is None or not head.running or view.deleting:
            continue
        serves = False if s.service.spec.exclude_head_pod_from_serve_svc else view.head_serves
        label = head.metadata.labels.get("ray.io/serve", "")
        if serves is not None and label != ("true" if serves else "false"):
            note = f"requests {'may' if serves else 'do not'} go to the head {head.name}"
            yield LabelHead(pod=head, serves=serves, told=Told(reason="UpdatedHeadPodServeLabel", note=note))


def _services(s: Snapshot, roles: Roles, course: Course) -> Iterable[Action]:
    view = s.named(course.backend)
    if view is not None:
        context = context_of(s, view)
        serve = backend.serve_manifest(s.service, context)
        if serve is not None:
            yield _service(s, serve, view)
        held = s.service_named(backend.head_service_of(s.service))
        yield replace(_service(s, backend.head_manifest(s.service, context, held), view), replaceable=True)
    if not is_incremental(s.service) and roles.way is not Way.INCREMENTAL:
        return
    for each in filter(None, (s.named(roles.active), s.named(roles.pending))):
        own = backend.cluster_serve_manifest(s.service, context_of(s, each)) if not each.deleting else None
        if own is not None:
            yield _service(s, own, each, owner=each)


def _service(s: Snapshot, manifest: dict[str, Any], view: ClusterView, *, owner: ClusterView | None = None) -> Ensure:
    name = manifest["metadata"]["name"]
    return Ensure(
        kind=OwnedService,
        manifest=manifest,
        held=s.service_named(name),
        owner=owner.cluster if owner is not None else s.service,
        created=Told(reason="CreatedService", note=f"Service {name}", action="Create"),
        updated=Told(reason="UpdatedService", note=f"Service {name} points to {view.name}", action="Update"),
    )


def _stale_services(s: Snapshot) -> Iterable[Action]:
    """Services of before, under a name that the spec no longer gives."""
    names = {backend.serve_service_of(s.service), backend.head_service_of(s.service)}
    if not s.backend:
        return
    for held in s.services:
        if is_owned(held, s.service) and held.name not in names and not held.deleting:
            yield Delete(item=held)


def _route(s: Snapshot, roles: Roles, after: _After, status: RayServiceStatus) -> Iterable[Action]:
    """Gateway and HTTPRoute follow the shares in the status, which is written before."""
    view = s.gateway
    if not is_incremental(s.service) and roles.way is not Way.INCREMENTAL:
        yield from (Delete(item=item) for item in (view.route, view.gateway) if item is not None and not item.deleting)
        return
    if not view.served:
        return
    backends = []
    for share in (status.active_service_status, status.pending_service_status):
        held = s.named(share.ray_cluster_name) if share is not None else None
        if share is None or held is None:
            continue
        ports = backend.serve_ports(context_of(s, held))
        if ports and share.traffic_routed_percent is not None:
            port = ports.get(backend.SERVE_PORT, next(iter(ports.values())))
            name = serve_service_name(held.name)
            backends.append((name, port, share.traffic_routed_percent))
    if not backends or not after.active:
        return
    if is_incremental(s.service):
        manifest = gateway.gateway_manifest(s.service)
        yield Ensure(kind=gateway.Gateway, manifest=manifest, held=view.gateway, owner=s.service)
    yield Ensure(
        kind=gateway.HTTPRoute,
        manifest=gateway.route_manifest(s.service, backends),
        held=view.route,
        owner=s.service,
    )


def _created(s: Snapshot, roles: Roles) -> Iterable[Action]:
    if not roles.create or s.named(roles.pending) is not None:
        return
    desired = s.service.spec.ray_cluster_config
    spec, annotations = desired, {}
    if roles.way is Way.HANDOVER and roles.terms is not None:
        # The workers with cards come later, one by one.
        annotations = {Annotation.HANDOVER.value: roles.terms.text(), Annotation.APPLIED_SCALE.value: ""}
        spec = replace(
            desired,
            worker_group_specs=tuple(
                with_replicas(group, group, 0, scaled=is_scaled(desired)) if replica_units(group, s.free) else group
                for group in desired.worker_group_specs
            ),
        )
    elif roles.way is Way.INCREMENTAL:
        groups = tuple(replace(group, replicas=group.min_replicas or 0) for group in desired.worker_group_specs)
        spec = replace(desired, worker_group_specs=groups)
    manifest = cluster_manifest(s.service, roles.pending, s.options, spec=spec, annotations=annotations)
    told = Told(reason="CreatedRayCluster", note=f"RayCluster {roles.pending}", action="Create")
    yield CreateCluster(manifest=manifest, told=told)


def _taken_over(s: Snapshot) -> Iterable[PatchCluster]:
    """Clusters that another operator, or another release of this one, has made get marks that are understood here."""
    for view in filter(None, (s.active, s.pending)):
        if view.deleting or not is_foreign(s, view):
            continue
        annotations = marks(s, view).annotations(s.options)
        if not view.annotation(Annotation.KUBERAY_VERSION).startswith(OWN_VERSIONS):
            # KubeRay's numbers of workers stay until the spec's change.
            annotations[Annotation.APPLIED_SCALE.value] = scale_mark(s.service.spec.ray_cluster_config)
        told = Told(reason="TookOverRayCluster", note=f"RayCluster {view.name} is looked after by this operator")
        yield _annotated(view, annotations, told)


def _refreshed(s: Snapshot, roles: Roles, course: Course, after: _After) -> Iterable[PatchCluster]:
    """Changes of clusters that exist: worker groups that were added, numbers of workers."""
    patched = {patch.cluster.name for patch in course.patches} if not (after.promoted or after.undone) else set()
    if patched:
        yield from course.patches
    newest = s.named(after.active if roles.back else after.pending or after.active)
    for view in filter(None, (s.named(after.active), s.named(after.pending))):
        if view.deleting or view.name in patched:
            continue
        follows = view is newest and (roles.way is not Way.HANDOVER or after.promoted or after.undone)
        patch = _refresh(s, view, follows=follows)
        if patch is not None:
            yield patch


def _refresh(s: Snapshot, view: ClusterView, *, follows: bool) -> PatchCluster | None:
    desired, held = s.service.spec.ray_cluster_config, view.cluster.spec
    annotations: dict[str, str | None] = {}
    spec: dict[str, Any] = {}
    told: Told | None = None
    if view.annotation(Annotation.UNUSED_SINCE):
        annotations[Annotation.UNUSED_SINCE.value] = None
    if follows:
        found = match_of(s, view)
        scale_differs = view.annotation(Annotation.APPLIED_SCALE) != scale_mark(desired)
        if found is Match.GROWN or (found is Match.SAME and scale_differs):
            groups = wanted_groups(view.cluster, desired)
            if groups != held.worker_group_specs:
                spec["workerGroupSpecs"] = [msgspec.to_builtins(group) for group in groups]
                told = Told(reason="UpdatedRayCluster", note=f"workers of {view.name} follow the spec", action="Update")
            annotations[Annotation.APPLIED_SCALE.value] = scale_mark(desired)
            if found is Match.GROWN:
                annotations |= Marks.of(desired).annotations(s.options)
        if view.annotation(Annotation.HANDOVER):
            annotations[Annotation.HANDOVER.value] = None
    if not annotations and not spec:
        return None
    body: dict[str, Any] = {"metadata": {"annotations": annotations}}
    return PatchCluster(cluster=view.cluster, body={**body, "spec": spec} if spec else body, told=told)


def _marked_unused(s: Snapshot, roles: Roles, after: _After) -> Iterable[PatchCluster]:
    """Clusters that have lost their role say since when, so that whoever deletes them waits no longer than asked."""
    for view in s.without_role(after.active, after.pending):
        if not view.deleting and view not in roles.drop and unused_since(view) is None:
            moment = s.now.replace(microsecond=0).isoformat()
            yield _annotated(view, {Annotation.UNUSED_SINCE.value: moment})


def _expired(s: Snapshot, after: _After) -> Iterable[Action]:
    """What has had requests stays for a while, so that those under way are answered."""
    for view in s.without_role(after.active, after.pending):
        since = unused_since(view)
        if since is not None and not view.deleting and since + deletion_delay(s) <= s.now:
            yield _deleted(view, "another answers in its place")


def _remembered(s: Snapshot) -> Iterable[PatchCluster]:
    """What Ray Serve has accepted is noted on the cluster."""
    for view in s.clusters:
        if view.accepted and not view.deleting:
            told = Told(reason="UpdatedServeApplications", note=f"Ray Serve of {view.name} has its configuration")
            yield _annotated(view, {Annotation.SERVE_CONFIG.value: remembered(view.accepted, s.now)}, told)


def _annotated(view: ClusterView, annotations: Mapping[str, str], told: Told | None = None) -> PatchCluster:
    return PatchCluster(cluster=view.cluster, body={"metadata": {"annotations": dict(annotations)}}, told=told)


def _next_deletion(s: Snapshot, after: _After) -> timedelta | None:
    waits = [
        (unused_since(view) or s.now) + deletion_delay(s) - s.now
        for view in s.without_role(after.active, after.pending)
        if not view.deleting
    ]
    return max(min(waits), timedelta(seconds=0.05)) if waits else None


def _deleted(view: ClusterView, why: str) -> Delete:
    told = Told(reason="DeletedRayCluster", note=f"RayCluster {view.name}: {why}", action="Delete")
    return Delete(item=view.cluster, told=told)


def _told(s: Snapshot, roles: Roles, after: _After, *, begins: bool) -> tuple[Told, ...]:
    found: list[Told] = [*roles.told] if roles.create or begins else []
    held = s.service.status.conditions
    if after.promoted and s.active_status.ray_cluster_name:
        found.append(Told(reason="UpgradeComplete", note=f"{after.active} answers; {roles.active} goes"))
    if after.undone:
        found.append(Told(reason="RollbackComplete", note=f"{after.active} answers as before; {roles.pending} goes"))
    if begins and after.active and after.pending:
        found.append(Told(reason="UpgradeStarted", note=f"{after.pending} is to take over from {after.active}"))
    if roles.back and not is_true(held, ServiceCondition.ROLLBACK_IN_PROGRESS):
        found.append(Told(reason="RollbackStarted", note=f"{roles.active} gets everything back"))
    if (
        roles.refused
        and not waits_for_gateway(s)
        and conditions.reason_of(held, ServiceCondition.UP_TO_DATE) != ServiceReason.NOT_CARRIED_OUT
    ):
        note = f"the change of spec.rayClusterConfig is not carried out: {roles.refused}"
        found.append(Told(reason="ChangeNotCarriedOut", note=note, warning=True))
    for view in filter(None, (s.named(after.active), s.named(after.pending))):
        if view.refused:
            note = f"Ray Serve of {view.name} did not take its configuration: {view.refused}"
            found.append(Told(reason="FailedToUpdateServeApplications", note=note, action="Update", warning=True))
    return tuple(found)


def _write(s: Snapshot, status: RayServiceStatus) -> WriteStatus:
    return WriteStatus(
        status=replace(status, last_update_time=s.now, observed_generation=s.service.metadata.generation)
    )
