"""The Gateway and the HTTPRoute of an incremental upgrade: requests are divided between the Services of two clusters.

They have an address of their own beside the Service of Serve, which goes on pointing to the active cluster. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube.conditions import is_true
from gpu_control_plane.kube.objects import Condition, Object, Resource, controlled_by

Manifest = dict[str, Any]

_GROUP: Final = "gateway.networking.k8s.io"
_PORT: Final = 80


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class Gateway(Object, frozen=True):
    """The entry point of requests."""

    resource: ClassVar[Resource] = Resource(_GROUP, "v1", "Gateway", "gateways")
    spec: dict[str, Any] = {}
    status: _Status = _Status()

    @property
    def accepted(self) -> bool:
        return all(is_true(self.status.conditions, kind) for kind in ("Accepted", "Programmed"))


class _RouteStatus(msgspec.Struct, frozen=True, kw_only=True):
    parents: tuple[_Status, ...] = ()


class HTTPRoute(Object, frozen=True):
    """How requests are divided between the Services."""

    resource: ClassVar[Resource] = Resource(_GROUP, "v1", "HTTPRoute", "httproutes")
    spec: dict[str, Any] = {}
    status: _RouteStatus = _RouteStatus()

    @property
    def accepted(self) -> bool:
        parents = self.status.parents
        return bool(parents) and all(
            is_true(parent.conditions, kind) for parent in parents for kind in ("Accepted", "ResolvedRefs")
        )


class GatewayView(msgspec.Struct, frozen=True, kw_only=True):
    """The two objects as they are, and whether the API server serves their kinds."""

    served: bool = False
    known: bool = True
    """Whether it is known if the kinds are served; just after the first watch has begun it is not."""
    gateway: Gateway | None = None
    route: HTTPRoute | None = None

    @property
    def ready(self) -> bool:
        """Whether requests are divided as the route says."""
        return self.gateway is not None and self.gateway.accepted and self.route is not None and self.route.accepted


def gateway_name(service: RayService) -> str:
    return f"{service.name}-gateway"


def route_name(service: RayService) -> str:
    return f"{service.name}-httproute"


def gateway_manifest(service: RayService) -> Manifest:
    strategy = service.spec.upgrade_strategy
    options = strategy.cluster_upgrade_options if strategy is not None else None
    listener = {"name": "http", "protocol": "HTTP", "port": _PORT}
    spec = {"gatewayClassName": options.gateway_class_name if options is not None else "", "listeners": [listener]}
    return _manifest(service, Gateway.resource, gateway_name(service), spec)


def route_manifest(service: RayService, backends: Iterable[tuple[str, int, int]]) -> Manifest:
    """`backends`: for each cluster its Service, the port, and the percentage of requests."""
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        "backendRefs": [
            {"group": "", "kind": "Service", "name": name, "port": port, "weight": weight}
            for name, port, weight in backends
        ],
    }
    parent = {"group": _GROUP, "kind": "Gateway", "name": gateway_name(service)}
    spec = {"parentRefs": [parent], "rules": [rule]}
    return _manifest(service, HTTPRoute.resource, route_name(service), spec)


def weights(route: HTTPRoute) -> Mapping[str, int]:
    """Percentage of requests by Service, as the route has it now."""
    rules = route.spec.get("rules") or [{}]
    return {ref["name"]: int(ref.get("weight", 1)) for ref in rules[0].get("backendRefs") or ()}


def _manifest(service: RayService, resource: Resource, name: str, spec: Manifest) -> Manifest:
    owner = controlled_by(service.resource, service.name, service.metadata.uid)
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": service.metadata.namespace,
            "ownerReferences": [msgspec.to_builtins(owner)],
        },
        "spec": spec,
    }
