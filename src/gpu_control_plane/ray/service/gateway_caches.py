"""The Gateways and HTTPRoutes of RayServices, watched in a namespace as soon as a service there asks for them: few
clusters have the Gateway API, and few services use it."""

from collections.abc import Callable, Iterable
from typing import Final

from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube.client import Client, Selection
from gpu_control_plane.kube.dynamic_caches import DynamicCaches
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.objects import Key, Object, controller_of
from gpu_control_plane.ray.service.gateway import Gateway, GatewayView, HTTPRoute, gateway_name, route_name
from gpu_control_plane.ray.service.gateway_use import is_divided

_KIND: Final = RayService.resource.kind


class GatewayCaches:
    """Both kinds. `changed` is called with the keys of the services that a change concerns."""

    def __init__(self, client: Client, changed: Callable[[Key], None]) -> None:
        self._gateways = DynamicCaches(client, Gateway)
        self._routes = DynamicCaches(client, HTTPRoute)
        self._changed = changed

    async def run(self) -> None:
        """Run the watches until cancelled, as `Runtime.service` expects."""
        await gather_all((self._gateways.run(), self._routes.run()))

    def of(self, service: RayService) -> GatewayView:
        """The objects of a service; nothing is watched for a service without a Gateway."""
        namespace = service.metadata.namespace or ""
        if not is_divided(service):
            return GatewayView()
        selection = Selection(namespace=namespace)
        gateways = self._gateways.follow(namespace, selection, self._enqueue)
        routes = self._routes.follow(namespace, selection, self._enqueue)
        return GatewayView(
            served=gateways.is_synced and routes.is_synced,
            known=all(cache.is_synced or cache.watch_error is not None for cache in (gateways, routes)),
            gateway=_own(gateways.get(gateway_name(service), namespace), service),
            route=_own(routes.get(route_name(service), namespace), service),
        )

    def learn(self, written: Iterable[Object]) -> None:
        """Put objects into the caches that have just been written."""
        for item in written:
            namespace = item.metadata.namespace or ""
            if isinstance(item, Gateway) and namespace in self._gateways:
                self._gateways.follow(namespace).learn(item)
            elif isinstance(item, HTTPRoute) and namespace in self._routes:
                self._routes.follow(namespace).learn(item)

    def _enqueue(self, old: Object | None, new: Object | None) -> None:
        for item in (old, new):
            owner = controller_of(item) if item is not None else None
            if item is not None and owner is not None and owner.kind == _KIND:
                self._changed(Key(owner.name, item.metadata.namespace))


def _own[T: Object](item: T | None, service: RayService) -> T | None:
    owner = controller_of(item) if item is not None else None
    return item if owner is not None and owner.uid == service.metadata.uid else None
