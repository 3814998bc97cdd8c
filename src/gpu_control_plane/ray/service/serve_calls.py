"""Puts configurations to Ray Serve of the clusters of a RayService and asks for their state, outside reconciles.

The name of a call holds what it is about: a question is asked under what was accepted last, so its answer is about
that, and a configuration is put anew under what was accepted before it.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.ray.dashboard.calls import Answer
from gpu_control_plane.ray.dashboard.client import Dashboard
from gpu_control_plane.ray.dashboard.exchange import DashboardEndpoint
from gpu_control_plane.ray.dashboard.models import ServeDetails
from gpu_control_plane.ray.names import SERVE_PORT_NAME, SERVE_PORT_NUMBER
from gpu_control_plane.ray.owned import RayPod
from gpu_control_plane.ray.service.applications import has_lost_all, is_accepted, serve_config_update
from gpu_control_plane.ray.service.backend import serve_ports
from gpu_control_plane.ray.service.roles import Roles, capacity_of, decide_roles, follows_config
from gpu_control_plane.ray.service.snapshot import ClusterView, Snapshot
from gpu_control_plane.ray.service.traffic import context_of

TargetOf = Callable[[RayCluster], Awaitable[DashboardEndpoint]]
ProxyOf = Callable[[RayPod, int], str]
"""The URL of Ray Serve's proxy on a pod."""


class Calls(Protocol):
    """The methods of `DashboardCalls` that are used here."""

    def ask[T](
        self, key: Key, name: str, call: Callable[[], Awaitable[T]], *, every: float | None = None
    ) -> Answer[T] | None: ...

    def retain(self, key: Key, names: Iterable[str]) -> None: ...


class ServeCalls:
    """The calls of one controller."""

    def __init__(
        self, dashboard: Dashboard, calls: Calls, target: TargetOf, proxy: ProxyOf, *, poll_seconds: float
    ) -> None:
        self._dashboard = dashboard
        self._calls = calls
        self._target = target
        self._proxy = proxy
        self._poll = poll_seconds

    def observed(self, s: Snapshot) -> Snapshot:
        """The snapshot with the answers of Ray Serve so far; calls whose answers are missing are begun. None are
        made for a service that is deleted, has an invalid spec, or belongs to another operator."""
        if s.service.deleting or s.other_operator or s.problems:
            return s
        roles = decide_roles(s)
        kept: list[str] = []
        views = tuple(
            self._of(s, roles, view, kept) if view.name in (roles.active, roles.pending) else view
            for view in s.clusters
        )
        self._calls.retain(s.service.key, kept)
        return replace(s, clusters=views)

    def _of(self, s: Snapshot, roles: Roles, view: ClusterView, kept: list[str]) -> ClusterView:
        if view.deleting or not view.head_ready:
            return view
        view = self._with_head(s, view, kept)
        annotation = view.annotation(Annotation.SERVE_CONFIG)
        update = serve_config_update(
            s.config, annotation, capacity_of(s, view.name), follows=follows_config(s, roles, view)
        )
        # The configuration that a cluster keeps may have been put by another operator: Ray Serve reports it.
        details, trouble = self._asked(s, view, annotation or ("" if update.config is not None else "-"), kept)
        if is_accepted(update, annotation) and not has_lost_all(update, details):
            return replace(view, details=details, trouble=trouble)
        body = update.body(details)
        if body is None:
            empty = "spec.serveConfigV2 is empty" if update.config is not None else ""
            return replace(view, details=details, trouble=trouble or empty)
        name = f"put {view.cluster.metadata.uid} {update.config_id} {annotation}"
        kept.append(name)
        answer = self._calls.ask(s.service.key, name, lambda: self._put(view.cluster, body))
        if answer is None:
            return view
        if answer.error is not None:
            return replace(view, refused=str(answer.error), trouble=str(answer.error))
        return replace(view, accepted=update.config_id)

    def _asked(
        self, s: Snapshot, view: ClusterView, annotation: str, kept: list[str]
    ) -> tuple[ServeDetails | None, str]:
        if not annotation:
            return None, ""
        name = f"get {view.cluster.metadata.uid} {annotation}"
        kept.append(name)
        answer = self._calls.ask(s.service.key, name, lambda: self._get(view.cluster), every=self._poll)
        if answer is None:
            return None, ""
        return answer.value, str(answer.error) if answer.error is not None else ""

    def _with_head(self, s: Snapshot, view: ClusterView, kept: list[str]) -> ClusterView:
        head = view.head
        if head is None or not head.status.pod_ip or s.service.spec.exclude_head_pod_from_serve_svc:
            return view
        ports = serve_ports(context_of(s, view))
        url = self._proxy(head, ports.get(SERVE_PORT_NAME, next(iter(ports.values()), SERVE_PORT_NUMBER)))
        name = f"head {head.metadata.uid} {url}"
        kept.append(name)
        answer = self._calls.ask(
            s.service.key, name, lambda: self._dashboard.head_serves(DashboardEndpoint(url=url)), every=self._poll
        )
        return view if answer is None else replace(view, head_serves=bool(answer.value))

    async def _put(self, cluster: RayCluster, body: dict[str, object]) -> None:
        await self._dashboard.put_serve(await self._target(cluster), body)

    async def _get(self, cluster: RayCluster) -> ServeDetails:
        return await self._dashboard.serve(await self._target(cluster))
