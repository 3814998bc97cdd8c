"""RayServices on a real API server: both operators of Ray, a dashboard for each cluster, and what a cluster does by
itself: pods run where there are cards, Services get EndpointSlices, what belongs to a deleted cluster goes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import msgspec

from fault_proxy import FaultProxy
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.api.ray.service import RayService, RayServiceStatus
from gpu_control_plane.kube import Client, Key, Requeue, Runtime, Selection
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.errors import AlreadyExists, Conflict, NotFound
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.objects import Condition, Object, controlled_by, controller_of
from gpu_control_plane.ray.cluster import controller as clusters
from gpu_control_plane.ray.components import RayComponents
from gpu_control_plane.ray.dashboard.exchange import Exchange
from gpu_control_plane.ray.demand import group_pods
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.owned import OF_CLUSTERS, OwnedService, RayPod, is_owned
from gpu_control_plane.ray.service import controller as services
from gpu_control_plane.ray.service.controller import EndpointSlice
from gpu_control_plane.ray.service.gateway import Gateway, HTTPRoute, weights
from gpu_control_plane.ray.settings import Settings
from integration.ray.fake_kubelet import FakeKubelet
from integration.ray.foreign_kinds import serve
from integration.running import running
from ray_dashboard import FakeDashboard
from waiting import until_async

Json = dict[str, Any]
CONFIG = "applications:\n- name: a\n  import_path: demo:app\n  deployments:\n  - name: D\n    user_config: {v: one}\n"
_DASHBOARDS = 6


class Serve(FakeDashboard):
    """Ray Serve of one cluster, whose deployment runs on its workers."""

    def __init__(self) -> None:
        super().__init__()
        self.controllers: FakeClusterControllers | None = None
        self.cluster = ""

    async def _serve(self, request: Any) -> Any:
        if self.controllers is not None and self.applications:
            running_now, wanted = self.controllers.workers(self.cluster)
            whole, some = running_now >= wanted, running_now > 0 or not wanted
            for application in self.applications.values():
                application["status"] = "RUNNING" if whole else "DEPLOYING"
                for deployment in application["deployments"].values():
                    deployment["status"] = "HEALTHY" if whole else "UPSCALING"
                    deployment["replicas"] = [{"state": "RUNNING" if some else "STARTING"}]
        return await super()._serve(request)


class FakeClusterControllers:
    """Scheduler, kubelet, endpoints and garbage collection of one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self.cards: int | None = None
        self.pool = ""
        self.kubelet = FakeKubelet(client, namespace)
        self.kubelet.starts = self._fits
        self.runtime = Runtime("fake-cluster-controllers", config=client.config, elect=False, status_port=None)
        selection = Selection(namespace=namespace)
        self._pods = self.runtime.cache(RayPod, selection)
        self._clusters = self.runtime.cache(RayCluster, selection)
        self._services = self.runtime.cache(OwnedService, selection)
        everything = self.runtime.controller("fake-cluster-controllers", self._reconcile, workers=1)
        everything.watch(self._pods, lambda _pod: (Key("all"),))
        everything.watch(self._clusters, lambda _pod: (Key("all"),))
        everything.watch(self._services, lambda _pod: (Key("all"),))
        self._taken: set[str] = set()

    def workers(self, cluster: str) -> tuple[int, int]:
        """Worker pods that run, and those that there should be."""
        held = self._clusters.get(cluster, self.namespace)
        pods = [pod for pod in self._pods if pod.cluster == cluster and not pod.is_head]
        wanted = sum(group_pods(group) for group in held.spec.worker_group_specs) if held is not None else 1
        return sum(pod.running and not pod.deleting for pod in pods), wanted

    def used(self) -> int:
        """Cards that pods have."""
        there = {pod.name: pod for pod in self._pods}
        names = {name for name in self._taken if name in there} | {p.name for p in there.values() if p.spec.node_name}
        return sum(self.units(there[name]) for name in names if not there[name].ended)

    def units(self, pod: RayPod) -> int:
        return sum(int(each.resources.limits.get(f"gpu.deckhouse.io/{self.pool}", 0)) for each in pod.spec.containers)

    def _fits(self, pod: RayPod) -> bool:
        if self.cards is None or not self.units(pod) or pod.name in self._taken:
            return True
        if self.used() + self.units(pod) > self.cards:
            return False
        self._taken.add(pod.name)
        return True

    async def _reconcile(self, _key: Key) -> Requeue | None:
        with suppress(Conflict, NotFound, AlreadyExists):
            await self._collect_garbage()
            await self._count_cards()
            for service in tuple(self._services):
                if Label.SERVE.value in service.metadata.labels and not service.deleting:
                    await self._slice(service)
        self.kubelet.look_again()
        return None

    async def _collect_garbage(self) -> None:
        clusters = {cluster.metadata.uid for cluster in self._clusters}
        for items in (self._pods, self._services):
            for item in tuple(items):
                owner = controller_of(item)
                if owner is not None and owner.kind == "RayCluster" and owner.uid not in clusters and not item.deleting:
                    await self._client.delete(type(item), item.name, self.namespace)

    async def _count_cards(self) -> None:
        if self.cards is not None:
            used = self.used()
            units = {"total": self.cards, "used": used, "reserved": 0, "available": self.cards - used, "faulted": 0}
            held = await self._client.get(GPUPool, self.pool)
            if held.status.units is None or held.status.units.used != used:
                status = {"units": units, "capacity": [{"name": held.resource_name, **units}]}
                await self._client.patch(GPUPool, self.pool, {"status": status}, subresource="status")

    async def _slice(self, service: OwnedService) -> None:
        selector = service.spec.get("selector") or {}
        ready = [
            pod
            for pod in self._pods
            if pod.ready and not pod.deleting and selector.items() <= pod.metadata.labels.items()
        ]
        endpoints = [
            {"addresses": ["10.1.2.3"], "conditions": {"ready": True}, "targetRef": {"uid": pod.metadata.uid}}
            for pod in sorted(ready, key=lambda pod: pod.name)
        ]
        name = f"{service.name}-slice"
        owner = controlled_by(service.resource, service.name, service.metadata.uid)
        body = {
            "metadata": {
                "name": name,
                "labels": {**service.metadata.labels, "kubernetes.io/service-name": service.name},
                "ownerReferences": [msgspec.to_builtins(owner)],
            },
            "addressType": "IPv4",
            "endpoints": endpoints,
        }
        try:
            await self._client.create(EndpointSlice, body, self.namespace)
        except AlreadyExists:
            await self._client.patch(EndpointSlice, name, body, namespace=self.namespace)


class ServiceEnv:
    """What a test does with a RayService, and what it sees."""

    def __init__(self, client: Client, namespace: str, proxy: FaultProxy, dashboards: list[Serve]) -> None:
        self.client = client
        self.namespace = namespace
        self.proxy = proxy
        self.controllers = FakeClusterControllers(client, namespace)
        self.options = RayOptions(watch_namespaces=(namespace,))
        self._dashboards = dashboards
        self._of: dict[str, Serve] = {}
        self.pool = f"p-{namespace}"[:60]
        self._operator: AsyncExitStack | None = None
        self.operator: asyncio.Task[None] | None = None

    # The operator.

    def cluster_runtime(self) -> Runtime:
        """The controller of RayClusters, which is not what is tried here."""
        runtime = Runtime("test-clusters", config=self.client.config, elect=False, status_port=None)
        clusters.build(RayComponents(runtime, Settings(options=self.options)))
        return runtime

    async def start_operator(self) -> None:
        runtime = Runtime("test-services", config=self.proxy.config, elect=False, status_port=None)
        exchange = Exchange(allowed=lambda _address: True)
        parts = RayComponents(
            runtime,
            Settings(options=self.options),
            where=lambda cluster, _service: self.dashboard(cluster.name).url,
            exchange=exchange,
        )
        services.build(parts, proxy=lambda pod, _port: self.dashboard(pod.cluster).url, poll_seconds=0.1)
        self._operator = AsyncExitStack()
        self.operator = await self._operator.enter_async_context(running(runtime))

    async def stop_operator(self) -> None:
        if self._operator is not None:
            with suppress(asyncio.CancelledError):
                await self._operator.aclose()
            self._operator = None

    def dashboard(self, cluster: str) -> Serve:
        """The one of a cluster; its proxy takes requests."""
        if cluster not in self._of:
            made = self._dashboards.pop()
            made.controllers, made.cluster, made.serves = self.controllers, cluster, True
            self._of[cluster] = made
        return self._of[cluster]

    # The service.

    async def create(
        self,
        *groups: Json,
        image: str = "ray:1",
        annotations: Mapping[str, str] | None = None,
        cluster: Json | None = None,
        **spec: Any,
    ) -> None:
        body = {
            "metadata": {"name": "svc", "annotations": dict(annotations or {})},
            "spec": {
                "serveConfigV2": CONFIG,
                "rayClusterDeletionDelaySeconds": 0,
                "rayClusterConfig": {**self.cluster_config(*groups, image=image), **(cluster or {})},
                **spec,
            },
        }
        await self.client.create(RayService, body, self.namespace)

    def cluster_config(self, *groups: Json, image: str = "ray:1") -> Json:
        return {"headGroupSpec": {"template": _template(image)}, "workerGroupSpecs": list(groups)}

    def group(self, replicas: int = 1, *, gpus: int = 0, image: str = "ray:1", **more: Any) -> Json:
        limits = {f"gpu.deckhouse.io/{self.pool}": gpus} if gpus else {}
        bounds = {"minReplicas": 0, "maxReplicas": 10}
        return {"groupName": "workers", "replicas": replicas, "template": _template(image, limits), **bounds, **more}

    async def change(self, **spec: Any) -> None:
        await self.client.patch(RayService, "svc", {"spec": spec}, namespace=self.namespace)

    async def upgrade(self, *groups: Json, image: str) -> None:
        await self.change(rayClusterConfig=self.cluster_config(*groups, image=image))

    async def add_gateway_api(self) -> None:
        """The CRDs of the Gateway API, as far as they are used."""
        await serve(self.client, Gateway, HTTPRoute)

    async def accept_gateway(self) -> None:
        """The Gateway's controller finds all in order."""
        now = "2026-01-01T00:00:00Z"
        kinds = ("Accepted", "Programmed", "ResolvedRefs")
        held = [
            {"type": kind, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": now}
            for kind in kinds
        ]
        status: Json = {"status": {"conditions": held}}
        await self.client.patch(Gateway, "svc-gateway", status, namespace=self.namespace, subresource="status")
        status = {"status": {"parents": [{"conditions": held}]}}
        await self.client.patch(HTTPRoute, "svc-httproute", status, namespace=self.namespace, subresource="status")

    async def route(self) -> Mapping[str, int]:
        """Requests of a hundred by cluster; empty without a route."""
        try:
            held = await self.client.get(HTTPRoute, "svc-httproute", self.namespace)
        except NotFound:
            return {}
        return {name.removesuffix("-serve-svc"): weight for name, weight in weights(held).items()}

    async def add_pool(self, cards: int) -> None:
        await self.client.create(GPUPool, {"metadata": {"name": self.pool}, "spec": {}})
        self.controllers.pool, self.controllers.cards = self.pool, cards

    # What is seen.

    async def status(self) -> RayServiceStatus:
        return (await self.client.get(RayService, "svc", self.namespace)).status

    async def condition(self, kind: str) -> Condition | None:
        return find((await self.status()).conditions, kind)

    async def active(self) -> str:
        held = (await self.status()).active_service_status
        return held.ray_cluster_name if held is not None else ""

    async def pending(self) -> str:
        held = (await self.status()).pending_service_status
        return held.ray_cluster_name if held is not None else ""

    async def clusters(self) -> dict[str, RayCluster]:
        found = await self.client.list(RayCluster, Selection(namespace=self.namespace))
        return {each.name: each for each in found if not each.deleting}

    async def all_services(self) -> list[OwnedService]:
        return await self.client.list(OwnedService, Selection(namespace=self.namespace))

    async def services(self) -> dict[str, OwnedService]:
        found = await self.client.list(OwnedService, Selection(namespace=self.namespace))
        service = await self.client.get(RayService, "svc", self.namespace)
        return {each.name: each for each in found if is_owned(each, service)}

    async def backend(self) -> str:
        held = (await self.services()).get("svc-serve-svc")
        return str(held.spec["selector"][Label.CLUSTER.value]) if held is not None else ""

    async def pods(self) -> list[RayPod]:
        return await self.client.list(RayPod, Selection(namespace=self.namespace, labels=OF_CLUSTERS.labels))

    async def events(self) -> dict[str, str]:
        found = await self.client.list(Event, Selection(namespace=self.namespace))
        return {event.reason: event.note for event in found}

    async def is_settled(self, image: str, *, replicas: int | None = None) -> bool:
        """Whether one cluster is left, of this image, and answers."""
        status, clusters = await self.status(), await self.clusters()
        active = await self.active()
        if status.service_status != "Running" or await self.pending() or list(clusters) != [active]:
            return False
        spec = clusters[active].spec
        right = spec.head_group_spec.template["spec"]["containers"][0]["image"] == image
        counts = [group.replicas for group in spec.worker_group_specs]
        return right and (replicas is None or counts == [replicas]) and await self.backend() == active

    async def settled(self, image: str = "ray:1", *, replicas: int | None = None, within: float = 30) -> str:
        await until_async(
            lambda: self.is_settled(image, replicas=replicas), within=within, saying=f"{image} does not answer alone"
        )
        return await self.active()


def _template(image: str, limits: Mapping[str, int] | None = None) -> Json:
    container = {"name": "ray", "image": image, "resources": {"limits": dict(limits or {})}}
    return {"spec": {"containers": [container]}}


@asynccontextmanager
async def service_env(client: Client, namespace: str, dashboards: int = _DASHBOARDS) -> AsyncIterator[ServiceEnv]:
    """`dashboards` is how many clusters there may be."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(FaultProxy.before(client.config))
        servers = [await stack.enter_async_context(Serve()) for _ in range(dashboards)]
        env = ServiceEnv(client, namespace, proxy, servers)
        await stack.enter_async_context(running(env.controllers.kubelet.runtime))
        await stack.enter_async_context(running(env.controllers.runtime))
        await stack.enter_async_context(running(env.cluster_runtime()))
        try:
            yield env
        finally:
            await env.stop_operator()


__all__ = ["CONFIG", "Object", "ServiceEnv", "service_env"]
