"""Where the dashboard of a RayCluster is, and with which token it is asked.

The address is made of names of objects that belong to the RayCluster. The token comes from the Secret that its spec
names, in its own namespace, and goes to its own dashboard only.
"""

import base64
import binascii
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

import msgspec

from gpu_control_plane.api.ray.cluster import AuthMode, RayCluster, RayClusterSpec
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.objects import Key, Object, Resource
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.ray.dashboard.errors import NotSent
from gpu_control_plane.ray.dashboard.exchange import DashboardEndpoint
from gpu_control_plane.ray.names import (
    AUTH_TOKEN_KEY,
    DASHBOARD_PORT,
    DASHBOARD_PORT_NAME,
    head_service_of,
    host_of,
    token_secret_name,
)
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.owned import OwnedService, is_owned

_TOKEN_HELD: Final = timedelta(minutes=1)

Addresses = Callable[[RayCluster, OwnedService | None], str]
"""The `DashboardEndpoint.url` of a cluster; the Service is the head's, if there is one."""


class TokenSecret(Object, frozen=True):
    """The Secret of a token; read by its name, never listed."""

    resource: ClassVar[Resource] = Resource("", "v1", "Secret", "secrets")

    data: dict[str, str] = {}


def addresses(options: RayOptions) -> Addresses:
    """By DNS, or through the API server where that is asked for; at the head's own Service alone. Its name may be a
    user's text, and another Service of that name may lead anywhere."""

    def where(cluster: RayCluster, service: OwnedService | None) -> str:
        if service is None:
            name = head_service_of(cluster)
            raise NotSent(f"the Service {name} of the head is not there, or belongs to something else")
        return dashboard_url(cluster, service, options)

    return where


def own_head_service(
    cluster: RayCluster, find: Callable[[str, str | None], OwnedService | None]
) -> OwnedService | None:
    """The Service of its head that belongs to a RayCluster. `find` looks one up by name and namespace."""
    held = find(head_service_of(cluster), cluster.metadata.namespace)
    return held if held is not None and is_owned(held, cluster) else None


def dashboard_url(cluster: RayCluster, service: OwnedService | None, options: RayOptions) -> str:
    """`http://<head Service>.<namespace>.svc.<domain>:<port>`, or the path at the API server."""
    namespace = cluster.metadata.namespace or ""
    name = service.name if service is not None else head_service_of(cluster)
    if service is not None and service.spec.get("type") == "ExternalName":
        raise NotSent(f"the Service {name} names a host outside of the cluster, so Ray's dashboard is not asked")
    if options.use_kubernetes_proxy:
        return f"/api/v1/namespaces/{namespace}/services/{name}:{DASHBOARD_PORT_NAME}/proxy"
    return f"http://{host_of(name, namespace, options.cluster_domain)}:{dashboard_port(cluster.spec, service)}"


def dashboard_port(spec: RayClusterSpec, service: OwnedService | None = None) -> int:
    """The port named `dashboard` of the head's Service, else of the head's container, else Ray's own."""
    ports = [*(service.spec.get("ports") or () if service is not None else ()), *_container_ports(spec)]
    for port in ports:
        if port.get("name") == DASHBOARD_PORT_NAME:
            return int(port.get("port") or port.get("containerPort") or DASHBOARD_PORT)
    return DASHBOARD_PORT


def token_secret(cluster: RayCluster) -> str | None:
    """The Secret with the token of a RayCluster; None where nobody is asked for one.

    Where tokens are those of service accounts there is none for us: a user's dashboard is not shown our own.
    """
    auth = cluster.spec.auth_options
    if auth is None or auth.mode is not AuthMode.TOKEN or auth.enable_k8s_token_auth:
        return None
    return token_secret_name(cluster.name, auth)


class DashboardEndpoints:
    """The endpoints of dashboards. A token is read by the name of its Secret, and read again after a minute."""

    def __init__(self, client: Client, where: Addresses, *, now: Callable[[], datetime] = utc_now) -> None:
        self._client = client
        self._where = where
        self._now = now
        self._tokens: dict[Key, _Token] = {}

    def url(self, cluster: RayCluster, service: OwnedService | None = None) -> str:
        return self._where(cluster, service)

    async def of(self, cluster: RayCluster, service: OwnedService | None = None) -> DashboardEndpoint:
        """Where the dashboard of `cluster` is; call it as part of a call, since it may read a Secret."""
        url = self.url(cluster, service)
        name = token_secret(cluster)
        token = await self._token(cluster, name) if name is not None else ""
        return DashboardEndpoint(url=url, token=token)

    async def _token(self, cluster: RayCluster, name: str) -> str:
        key = Key(name, cluster.metadata.namespace)
        now = self._now()
        self._tokens = {one: held for one, held in self._tokens.items() if held.until > now}
        held = self._tokens.get(key)
        if held is not None:
            return held.token
        try:
            secret = await self._client.get(TokenSecret, name, key.namespace)
        except NotFound:
            raise NotSent(f"the Secret {name} with the token for Ray does not exist") from None
        token = _decoded(secret.data.get(AUTH_TOKEN_KEY, ""))
        if not token:
            raise NotSent(f"the Secret {name} has no token under the key {AUTH_TOKEN_KEY}")
        self._tokens[key] = _Token(token, now + _TOKEN_HELD)
        return token


class _Token(msgspec.Struct, frozen=True):
    token: str
    until: datetime


def _decoded(data: str) -> str:
    """The token as it goes into a header; nothing that could end one."""
    try:
        text = base64.b64decode(data).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return text if text.isascii() and text.isprintable() else ""


def _container_ports(spec: RayClusterSpec) -> list[dict[str, Any]]:
    containers = (spec.head_group_spec.template.get("spec") or {}).get("containers") or [{}]
    return list(containers[0].get("ports") or ())
