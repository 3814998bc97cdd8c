"""What the controllers of Ray share: made once, and given to each of them."""

from collections.abc import Callable
from datetime import datetime

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.ray.names import LEASE
from gpu_control_plane.kube.client import EVERYTHING, Selection
from gpu_control_plane.kube.lease_watch import LeaseWatch
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.ray.child_writer import ChildWriter
from gpu_control_plane.ray.dashboard.access import Addresses, DashboardEndpoints, addresses
from gpu_control_plane.ray.dashboard.calls import DashboardCalls, Pace
from gpu_control_plane.ray.dashboard.client import Dashboard
from gpu_control_plane.ray.dashboard.exchange import Exchange
from gpu_control_plane.ray.settings import Settings
from gpu_control_plane.ray.watched import Watched
from gpu_control_plane.rules.ray.gpus import LivePools


class RayComponents:
    """The process, the settings, and what every controller of Ray needs."""

    def __init__(
        self,
        runtime: Runtime,
        settings: Settings,
        *,
        now: Callable[[], datetime] = utc_now,
        exchange: Exchange | None = None,
        where: Addresses | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Tests say by `exchange`, `where` and `pace` how dashboards are reached, where they are, and how often."""
        self.runtime = runtime
        self.settings = settings
        self.now = now
        self.writer = ChildWriter(runtime.client)
        self.lease = KubeRayLease(runtime, settings.trusted.include, now=now, namespace=settings.alone_in)
        """Whether KubeRay's own operator is active. While it is, controllers write nothing."""
        self.gpus = LivePools()
        self.pools = runtime.cache(GPUPool)
        self.pools.on_change(self.gpus.changed)
        self.dashboard = Dashboard(exchange or Exchange(runtime.client.config))
        self.endpoints = DashboardEndpoints(runtime.client, where or addresses(settings.options), now=now)
        self.calls = DashboardCalls(now=now, may_call=lambda: runtime.leading, pace=pace)
        """Each controller takes its own by `calls.for_controller(name)`."""
        runtime.on_lead(self.calls.forget_all)
        runtime.service(self.dashboard.run)
        runtime.service(self.calls.run)

    def caches[T: Object](self, kind: type[T], selection: Selection = EVERYTHING) -> Watched[T]:
        """The objects of a kind in all watched namespaces."""
        return Watched(self.runtime, kind, selection, self.settings.options.watch_namespaces)


class KubeRayLease(LeaseWatch):
    """The Leases of KubeRay's operator; `rules.trusted_namespaces.kuberay_namespaces` says where they are believed."""

    def __init__(
        self,
        runtime: Runtime,
        trusted: Callable[[str | None], bool],
        *,
        now: Callable[[], datetime] = utc_now,
        namespace: str | None = None,
    ) -> None:
        super().__init__(runtime, "kuberay-lease", LEASE, trusted, now=now, namespace=namespace)
