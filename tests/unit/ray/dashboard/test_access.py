"""Where the dashboard of a RayCluster is: at names of its own objects, with its own token."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.objects import ObjectMeta, OwnerReference
from gpu_control_plane.ray.dashboard.access import (
    DashboardEndpoints,
    addresses,
    dashboard_url,
    own_head_service,
    token_secret,
)
from gpu_control_plane.ray.dashboard.errors import NotSent
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.owned import OwnedService

OPTIONS = RayOptions()
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def cluster(name: str = "rc", ports: list[dict[str, Any]] | None = None, **spec: Any) -> RayCluster:
    template = {"spec": {"containers": [{"name": "ray", "ports": ports or []}]}}
    head = {"template": template, **spec.pop("headGroupSpec", {})}
    wire = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"headGroupSpec": head, **spec}}
    return msgspec.convert(wire, RayCluster)


def service(name: str, **spec: Any) -> OwnedService:
    return OwnedService(metadata=ObjectMeta(name=name, namespace="ns"), spec=spec)


@pytest.mark.parametrize(
    ("given", "held", "options", "url"),
    [
        (cluster(), None, OPTIONS, "http://rc-head-svc.ns.svc.cluster.local:8265"),
        (
            cluster(ports=[{"name": "gcs", "containerPort": 6379}, {"name": "dashboard", "containerPort": 9999}]),
            None,
            OPTIONS,
            "http://rc-head-svc.ns.svc.cluster.local:9999",
        ),
        (
            cluster(headGroupSpec={"headService": {"metadata": {"name": "mine"}}}),
            None,
            OPTIONS,
            "http://mine.ns.svc.cluster.local:8265",
        ),
        (
            cluster(ports=[{"name": "dashboard", "containerPort": 9999}]),
            service("mine", ports=[{"name": "dashboard", "port": 80, "targetPort": 9999}]),
            OPTIONS,
            "http://mine.ns.svc.cluster.local:80",
        ),
        (cluster(), None, RayOptions(cluster_domain="k8s.example"), "http://rc-head-svc.ns.svc.k8s.example:8265"),
        (
            cluster(),
            None,
            RayOptions(use_kubernetes_proxy=True),
            "/api/v1/namespaces/ns/services/rc-head-svc:dashboard/proxy",
        ),
    ],
)
def test_the_address_is_that_of_the_heads_service(
    given: RayCluster, held: OwnedService | None, options: RayOptions, url: str
) -> None:
    assert dashboard_url(given, held, options) == url


def test_a_service_that_names_a_host_elsewhere_is_not_called() -> None:
    elsewhere = service("rc-head-svc", type="ExternalName", externalName="metadata.example")
    with pytest.raises(NotSent, match="outside of the cluster"):
        dashboard_url(cluster(), elsewhere, OPTIONS)


@pytest.mark.parametrize("name", ["", "elsewhere.example/x?", "../../secrets/x?"])
@pytest.mark.parametrize("options", [OPTIONS, RayOptions(use_kubernetes_proxy=True)])
async def test_nothing_is_called_by_a_name_alone(name: str, options: RayOptions) -> None:
    """The name is a user's text, and what is there by that name may be anything."""
    given = cluster(headGroupSpec={"headService": {"metadata": {"name": name}}})
    endpoints = DashboardEndpoints(Secrets(), addresses(options))  # type: ignore[arg-type]
    with pytest.raises(NotSent, match="not there, or belongs to something else"):
        await endpoints.of(given, None)


def test_the_heads_service_is_one_that_the_cluster_owns() -> None:
    given = cluster()
    owned = replace(given, metadata=replace(given.metadata, uid="c1"))
    mine = service("rc-head-svc")
    owner = OwnerReference(api_version="ray.io/v1", kind="RayCluster", name="rc", uid="c1", controller=True)
    held = replace(mine, metadata=replace(mine.metadata, owner_references=(owner,)))
    assert own_head_service(owned, lambda name, _namespace: held if name == "rc-head-svc" else None) is held
    assert own_head_service(owned, lambda _name, _namespace: mine) is None


@pytest.mark.parametrize(
    ("auth", "secret"),
    [
        (None, None),
        ({"mode": "disabled"}, None),
        ({}, None),
        ({"mode": "token"}, "rc"),
        ({"mode": "token", "secretName": "shared"}, "shared"),
        ({"mode": "token", "enableK8sTokenAuth": True}, None),
    ],
)
def test_the_token_is_in_the_secret_that_the_spec_names(auth: dict[str, Any] | None, secret: str | None) -> None:
    given = cluster() if auth is None else cluster(authOptions=auth)
    assert token_secret(given) == secret


class Secrets:
    """Stands for a client that may get Secrets by name."""

    def __init__(self, **tokens: bytes) -> None:
        self.tokens = tokens
        self.reads: list[str] = []

    async def get(self, kind: type[Any], name: str, namespace: str | None) -> Any:
        self.reads.append(f"{namespace}/{name}")
        if name not in self.tokens:
            raise NotFound(404, "NotFound", "no")
        return kind(data={"auth_token": base64.b64encode(self.tokens[name]).decode()})


HEAD = service("rc-head-svc", ports=[{"name": "dashboard", "port": 8265}])


def _endpoints(secrets: Secrets, now: list[datetime]) -> DashboardEndpoints:
    return DashboardEndpoints(secrets, addresses(OPTIONS), now=lambda: now[0])  # type: ignore[arg-type]


async def test_a_token_is_read_by_name_and_kept_for_a_minute() -> None:
    secrets, now = Secrets(rc=b"abc\n"), [BEGIN]
    endpoints = _endpoints(secrets, now)
    for _ in range(3):
        assert (await endpoints.of(cluster(authOptions={"mode": "token"}), HEAD)).token == "abc"
    assert secrets.reads == ["ns/rc"]
    secrets.tokens["rc"] = b"def"
    now[0] += timedelta(minutes=2)
    assert (await endpoints.of(cluster(authOptions={"mode": "token"}), HEAD)).token == "def"


async def test_without_authentication_no_secret_is_read() -> None:
    secrets = Secrets()
    assert (await _endpoints(secrets, [BEGIN]).of(cluster(), HEAD)).token == ""
    assert secrets.reads == []


@pytest.mark.parametrize("token", [None, b"", b"a\r\nX-Injected: 1", "тайна".encode(), b"\xff"])
async def test_a_token_that_is_none_is_not_sent(token: bytes | None) -> None:
    secrets = Secrets() if token is None else Secrets(rc=token)
    with pytest.raises(NotSent, match="Secret rc"):
        await _endpoints(secrets, [BEGIN]).of(cluster(authOptions={"mode": "token"}), HEAD)
