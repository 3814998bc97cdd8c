"""The controller of RayServices: a snapshot from caches and answers of Ray Serve, a decision, and its writes."""

import random
from collections.abc import Iterable
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.objects import Key, Object, Resource, controller_of
from gpu_control_plane.kube.signal import Signal
from gpu_control_plane.ray.components import RayComponents
from gpu_control_plane.ray.dashboard.access import own_head_service
from gpu_control_plane.ray.dashboard.exchange import DashboardEndpoint
from gpu_control_plane.ray.owned import OF_CLUSTERS, OwnedService, RayPod, is_owned
from gpu_control_plane.ray.service.backend import serve_service_of
from gpu_control_plane.ray.service.decide import decide
from gpu_control_plane.ray.service.execute import Executor
from gpu_control_plane.ray.service.gateway_caches import GatewayCaches
from gpu_control_plane.ray.service.observe import snapshot_of
from gpu_control_plane.ray.service.serve_calls import ProxyOf, ServeCalls
from gpu_control_plane.ray.service.snapshot import Snapshot, Timings
from gpu_control_plane.ray.watched import Watched

_BY_OWNER: Final = "ray-service/owner"
_OF_SERVICES: Final = Selection(labels=f"{Label.ORIGINATED_FROM_KIND.value}=RayService")
_OF_SERVE: Final = Selection(labels=Label.SERVE.value)
_POLL_SECONDS: Final = 2.0


class _EndpointConditions(msgspec.Struct, frozen=True):
    ready: bool | None = None


class _TargetRef(msgspec.Struct, frozen=True):
    uid: str = ""


class _Endpoint(msgspec.Struct, frozen=True, rename="camel"):
    conditions: _EndpointConditions = _EndpointConditions()
    target_ref: _TargetRef | None = None


class EndpointSlice(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
    endpoints: tuple[_Endpoint, ...] | None = None


def build(
    parts: RayComponents,
    *,
    proxy: ProxyOf | None = None,
    poll_seconds: float = _POLL_SECONDS,
    timings: Timings | None = None,
    rng: random.Random | None = None,
) -> None:
    """Add the controller of RayServices to a process. Tests give the addresses of Ray Serve's proxies by `proxy`."""
    runtime, options = parts.runtime, parts.settings.options
    services, clusters = parts.caches(RayService), parts.caches(RayCluster)
    pods, children = parts.caches(RayPod, OF_CLUSTERS), parts.caches(OwnedService, _OF_SERVICES)
    heads, slices = parts.caches(OwnedService, OF_CLUSTERS), parts.caches(EndpointSlice, _OF_SERVE)
    for cache in (clusters, pods, children, slices):
        cache.index(_BY_OWNER, _owner)
    calls = parts.calls.for_controller("ray-service-calls")
    runtime.on_lead(calls.forget_all)

    async def target(cluster: RayCluster) -> DashboardEndpoint:
        return await parts.endpoints.of(cluster, own_head_service(cluster, heads.get))

    serve_calls = ServeCalls(
        parts.dashboard,
        calls,
        target,
        proxy or _proxies(parts),
        poll_seconds=poll_seconds,
    )
    executor = Executor(runtime.client, parts.writer, runtime.events, parts.now)
    gateways_changed = Signal("ray-service-gateways")
    gateways = GatewayCaches(runtime.unfenced_client, gateways_changed.fire)
    runtime.service(gateways.run)
    rng = rng or random.Random()

    def take_snapshot(service: RayService) -> Snapshot:
        holder = parts.lease.active()
        return snapshot_of(
            service,
            clusters=clusters.by_index(_BY_OWNER, service.metadata.uid),
            pods=lambda cluster: pods.by_index(_BY_OWNER, cluster.metadata.uid),
            services=lambda owner: children.by_index(_BY_OWNER, owner.metadata.uid),
            endpoints=_endpoints(children, slices, service),
            gateway=gateways.of(service),
            pools=parts.pools,
            rng=rng,
            now=parts.now(),
            options=options,
            timings=timings or _timings(parts),
            other_operator=f"{holder.holder} in namespace {holder.namespace}" if holder is not None else "",
        )

    async def reconcile(key: Key) -> Requeue | None:
        service = services.at(key)
        if service is None or service.deleting:
            calls.forget(key)
        if service is None:
            return None
        decision = decide(serve_calls.observed(take_snapshot(service)))
        gateways.learn(await executor.carry_out(service, decision))
        return Requeue(after=decision.again_in.total_seconds()) if decision.again_in is not None else None

    def service_of_cluster(item: Object) -> Iterable[Key]:
        """The service of a pod or Service that belongs to one of its clusters."""
        owner = controller_of(item)
        held = clusters.get(owner.name, item.metadata.namespace) if owner is not None else None
        return _service_of(held) if held is not None and owner is not None and held.metadata.uid == owner.uid else ()

    controller = runtime.controller("ray-service", reconcile)
    services.watch(controller)
    clusters.watch(controller, _service_of)
    pods.watch(controller, service_of_cluster, _pod_changed)
    children.watch(controller, lambda item: (*_service_of(item), *service_of_cluster(item)))
    slices.watch(controller, lambda item: _service_of_slice(item, children))
    controller.watch(calls.signal, lambda fired: (fired.key,))
    controller.watch(gateways_changed, lambda fired: (fired.key,))
    controller.watch(parts.lease.changed, lambda _fired: [service.key for service in services])


def _timings(parts: RayComponents) -> Timings:
    settings = parts.settings
    return Timings(
        handover_patience=settings.service_handover_patience,
        scheduling_patience=settings.service_scheduling_patience,
    )


def _proxies(parts: RayComponents) -> ProxyOf:
    """Ray Serve's proxy on a pod: at the pod's address, or through the API server if the options say so."""

    def proxy(pod: RayPod, port: int) -> str:
        if parts.settings.options.use_kubernetes_proxy:
            return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.name}:{port}/proxy"
        address = pod.status.pod_ip
        return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"

    return proxy


def _endpoints(children: Watched[OwnedService], slices: Watched[EndpointSlice], service: RayService) -> int:
    """Pods behind the Service of Serve that are ready."""
    name = serve_service_of(service)
    held = children.get(name, service.metadata.namespace)
    if held is None or not is_owned(held, service):
        return 0
    targets = {
        endpoint.target_ref.uid
        for item in slices.by_index(_BY_OWNER, held.metadata.uid)
        if is_owned(item, held)
        for endpoint in item.endpoints or ()
        if endpoint.conditions.ready is not False and endpoint.target_ref is not None
    }
    return len(targets)


def _owner(item: Object) -> Iterable[str]:
    owner = controller_of(item)
    return (owner.uid,) if owner is not None else ()


def _service_of(item: Object) -> Iterable[Key]:
    owner = controller_of(item)
    if owner is None or owner.kind != RayService.resource.kind:
        return ()
    return (Key(owner.name, item.metadata.namespace),)


def _service_of_slice(item: Object, children: Watched[OwnedService]) -> Iterable[Key]:
    owner = controller_of(item)
    held = children.get(owner.name, item.metadata.namespace) if owner is not None else None
    return _service_of(held) if held is not None else ()


def _pod_changed(old: RayPod | None, new: RayPod | None) -> bool:
    if old is None or new is None:
        return True

    def read(pod: RayPod) -> tuple[object, ...]:
        return pod.status.phase, pod.ready, pod.deleting, pod.status.pod_ip, pod.metadata.labels

    return read(old) != read(new)
