"""Where requests of a RayService go: labels of heads, Services, and the Gateway's route. Pure."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from gpu_control_plane.api.ray.service import RayServiceStatus
from gpu_control_plane.ray.cluster.manifests import ClusterContext
from gpu_control_plane.ray.event_record import EventRecord
from gpu_control_plane.ray.names import SERVE_PORT_NAME, serve_service_name
from gpu_control_plane.ray.owned import OwnedService, is_owned
from gpu_control_plane.ray.service import backend, gateway
from gpu_control_plane.ray.service.actions import Action, Delete, Ensure, LabelHead
from gpu_control_plane.ray.service.events import ServiceEvent
from gpu_control_plane.ray.service.gateway_use import is_incremental
from gpu_control_plane.ray.service.roles import Roles, UpgradeMode
from gpu_control_plane.ray.service.snapshot import ClusterView, Snapshot
from gpu_control_plane.ray.service.upgrade_plan import NextRoles, UpgradePlan


def context_of(s: Snapshot, view: ClusterView) -> ClusterContext:
    return ClusterContext(cluster=view.cluster, options=s.options)


def head_labels(s: Snapshot, roles: Roles) -> Iterable[Action]:
    """Let requests go to a head whose proxy takes them. Until the proxy has answered, the label is not changed."""
    for view in filter(None, (s.named(roles.active), s.named(roles.pending))):
        head = view.head
        if head is None or not head.running or view.deleting:
            continue
        serves = False if s.service.spec.exclude_head_pod_from_serve_svc else view.head_serves
        label = head.metadata.labels.get("ray.io/serve", "")
        if serves is not None and label != ("true" if serves else "false"):
            note = f"requests {'may' if serves else 'do not'} go to the head {head.name}"
            yield LabelHead(
                pod=head, serves=serves, event=EventRecord(reason=ServiceEvent.UPDATED_HEAD_LABEL, note=note)
            )


def services(s: Snapshot, roles: Roles, plan: UpgradePlan) -> Iterable[Action]:
    """The Services of the RayService point to the cluster that answers; for a Gateway, each cluster has its own."""
    view = s.named(plan.backend)
    if view is not None:
        context = context_of(s, view)
        serve = backend.serve_manifest(s.service, context)
        if serve is not None:
            yield _service(s, serve, view)
        held = s.service_named(backend.head_service_of(s.service))
        yield replace(_service(s, backend.head_manifest(s.service, context, held), view), replaceable=True)
    if not is_incremental(s.service) and roles.mode is not UpgradeMode.INCREMENTAL:
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
        created=EventRecord(reason=ServiceEvent.CREATED_SERVICE, note=f"Service {name}", action="Create"),
        updated=EventRecord(
            reason=ServiceEvent.UPDATED_SERVICE, note=f"Service {name} points to {view.name}", action="Update"
        ),
    )


def stale_services(s: Snapshot) -> Iterable[Action]:
    """Services under a former name of spec.serveService."""
    names = {backend.serve_service_of(s.service), backend.head_service_of(s.service)}
    if not s.backend:
        return
    for held in s.services:
        if is_owned(held, s.service) and held.name not in names and not held.deleting:
            yield Delete(item=held)


def gateway_route(s: Snapshot, roles: Roles, after: NextRoles, status: RayServiceStatus) -> Iterable[Action]:
    """Gateway and HTTPRoute follow the shares in the status, which is written before them."""
    view = s.gateway
    if not is_incremental(s.service) and roles.mode is not UpgradeMode.INCREMENTAL:
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
            port = ports.get(SERVE_PORT_NAME, next(iter(ports.values())))
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
