"""The operator of Ray in one namespace of a real API server, behind a proxy that counts requests and loses answers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, ClassVar

import msgspec

from fault_proxy import FaultProxy
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.kube import Client, Runtime, Selection
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.config import Config
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.objects import Condition, Object, Resource
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.ray.cluster import controller as clusters
from gpu_control_plane.ray.components import RayComponents
from gpu_control_plane.ray.dashboard.access import Addresses
from gpu_control_plane.ray.dashboard.exchange import Exchange
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.owned import OF_CLUSTERS, OwnedService, RayPod
from gpu_control_plane.ray.settings import Settings
from integration.ray.fake_kubelet import FakeKubelet
from integration.running import running
from unit.ray.ray_clusters import group, template
from waiting import until_async

Json = dict[str, Any]


class ResourceQuota(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ResourceQuota", "resourcequotas")


class RayEnv:
    """What a test does with RayClusters, and what it sees."""

    def __init__(self, client: Client, namespace: str, proxy: FaultProxy) -> None:
        self.client = client
        self.namespace = namespace
        self.proxy = proxy
        self.kubelet = FakeKubelet(client, namespace)
        self.options = RayOptions(watch_namespaces=(namespace,))
        self.settings = Settings(options=self.options)
        self.where: Addresses | None = None
        self.exchange: Exchange | None = None
        self.ahead = timedelta()
        """How far the operator's clock is ahead."""
        self.build: Callable[[RayComponents], None] = clusters.build
        self._operator: AsyncExitStack | None = None
        self._task: asyncio.Task[None] | None = None

    async def start_operator(self) -> None:
        runtime = Runtime("test-ray", config=self.proxy.config, elect=False, status_port=None)
        self.build(
            RayComponents(
                runtime, self.settings, now=lambda: utc_now() + self.ahead, where=self.where, exchange=self.exchange
            )
        )
        self._operator = AsyncExitStack()
        self._task = await self._operator.enter_async_context(running(runtime))

    async def kill_operator(self) -> None:
        """End it in the middle of what it does."""
        operator, self._operator = self._operator, None
        if operator is not None and self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await operator.aclose()

    async def stop_operator(self) -> None:
        if self._operator is not None:
            await self._operator.aclose()
            self._operator = None

    async def create(
        self,
        *groups: Json,
        name: str = "rc",
        head: Json | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> RayCluster:
        body = {
            "metadata": {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})},
            "spec": {
                "headGroupSpec": {"template": template(), **(head or {})},
                "workerGroupSpecs": [{"minReplicas": 0, "maxReplicas": 1000, **each} for each in groups],
                **spec,
            },
        }
        return await self.client.create(RayCluster, body, self.namespace)

    async def change(self, name: str = "rc", **spec: Any) -> RayCluster:
        return await self.client.patch(RayCluster, name, {"spec": spec}, namespace=self.namespace)

    async def change_groups(self, *groups: Json, name: str = "rc") -> RayCluster:
        return await self.change(name, workerGroupSpecs=[{"minReplicas": 0, "maxReplicas": 1000, **g} for g in groups])

    async def get(self, name: str = "rc") -> RayCluster:
        return await self.client.get(RayCluster, name, self.namespace)

    async def pods(self, name: str | None = None, group: str | None = None) -> list[RayPod]:
        labels = f"ray.io/cluster={name}" if name else OF_CLUSTERS.labels
        found = await self.client.list(RayPod, Selection(namespace=self.namespace, labels=labels))
        return [pod for pod in found if group is None or pod.group == group]

    async def service(self, name: str) -> OwnedService:
        return await self.client.get(OwnedService, name, self.namespace)

    async def objects[T: Object](self, kind: type[T]) -> dict[str, T]:
        return {item.name: item for item in await self.client.list(kind, Selection(namespace=self.namespace))}

    async def condition(self, kind: str, name: str = "rc") -> Condition | None:
        return find((await self.get(name)).status.conditions, kind)

    async def says(self, kind: str, status: str, name: str = "rc") -> bool:
        held = await self.condition(kind, name)
        return held is not None and held.status == status

    async def is_ready(self, name: str = "rc") -> bool:
        held = await self.get(name)
        return (
            held.status.state == "ready"
            and held.status.observed_generation == held.metadata.generation
            and await self.says("WorkersReady", "True", name)
        )

    async def ready(self, name: str = "rc") -> RayCluster:
        await until_async(lambda: self.is_ready(name), within=20, saying=f"{name} is not ready")
        return await self.get(name)

    async def events(self) -> dict[str, str]:
        """Notes by reason; of several, one."""
        found = await self.client.list(Event, Selection(namespace=self.namespace))
        return {event.reason: event.note for event in found}

    async def quiet(self, seconds: float = 1.2) -> None:
        """Return when the operator has written nothing for so long."""
        count = len(self.writes)
        while True:
            await asyncio.sleep(seconds)
            if len(self.writes) == count:
                return
            count = len(self.writes)

    @property
    def writes(self) -> list[str]:
        """What the operator has written, Events left out."""
        return [
            f"{request.method} {request.path.rsplit('/namespaces/', 1)[-1].partition('/')[2]}"
            for request in self.proxy.writes
            if "/events" not in request.path
        ]

    async def pool(self, name: str, *, total: int, available: int | None = None) -> str:
        """A GPUPool of so many units; its resource."""
        resource = f"gpu.deckhouse.io/{name}"
        if not any(pool.name == name for pool in await self.client.list(GPUPool)):
            await self.client.create(GPUPool, {"metadata": {"name": name}, "spec": {}})
        free = total if available is None else available
        units = {"total": total, "used": total - free, "reserved": 0, "available": free, "faulted": 0}
        status = {"phase": "Ready", "units": units, "capacity": [{"name": resource, **units}]}
        await self.client.patch(GPUPool, name, {"status": status}, subresource="status")
        return resource


def gpu_group(resource: str, replicas: int, units: int = 1, **rest: Any) -> Json:
    return group(template=template({resource: units}), replicas=replicas, **rest)


@asynccontextmanager
async def ray_env(client: Client, namespace: str, operator: Config | None = None) -> AsyncIterator[RayEnv]:
    """`operator` is whose rights the operator has, if not the administrator's."""
    async with FaultProxy.before(operator or client.config) as proxy:
        env = RayEnv(client, namespace, proxy)
        async with running(env.kubelet.runtime):
            try:
                yield env
            finally:
                await env.stop_operator()


def plain(value: object) -> Any:
    return msgspec.to_builtins(value)
