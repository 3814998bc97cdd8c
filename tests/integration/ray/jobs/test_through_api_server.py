"""Requests to a dashboard through a real API server: it passes them to the head's Service, with Ray's token and without
ours."""

import socket
from typing import Any, ClassVar

import pytest

from gpu_control_plane.kube import Object, Resource
from gpu_control_plane.ray.dashboard.client import Dashboard
from gpu_control_plane.ray.dashboard.errors import NoAnswer
from gpu_control_plane.ray.dashboard.exchange import DashboardEndpoint, Exchange
from gpu_control_plane.ray.dashboard.models import JobSubmission
from gpu_control_plane.ray.owned import OwnedService, RayPod
from integration.bootstrap.operands import allow_pods
from integration.ray.jobs.job_env import RayJobEnv
from ray_dashboard import FakeDashboard
from waiting import until_async


class Endpoints(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Endpoints", "endpoints")


def own_address() -> str | None:
    """An address of this machine that the API server may call: none of loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(sock.getsockname()[0])
    return None if address.startswith("127.") else address


async def test_the_api_server_passes_requests_on(env: RayJobEnv) -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address beside loopback")
    async with FakeDashboard(token="rays", host="0.0.0.0") as fake:  # noqa: S104 - the API server calls it
        await serve(env, address, fake.port)
        path = f"/api/v1/namespaces/{env.namespace}/services/demo-head-svc:dashboard/proxy"
        async with Dashboard(Exchange(env.client.config, environ={})) as dashboard:
            endpoint = DashboardEndpoint(url=path, token="rays")

            async def reached() -> bool:
                try:
                    return await dashboard.job(endpoint, "demo-x1") is None
                except NoAnswer:
                    return False

            await until_async(reached, saying="the API server knows the endpoints", within=20)
            await dashboard.submit(endpoint, JobSubmission(entrypoint="x", submission_id="demo-x1"))
            assert await dashboard.submit(endpoint, JobSubmission(entrypoint="x", submission_id="demo-x1")) == "demo-x1"
            assert len(fake.submissions) == 1
            assert await dashboard.job(endpoint, "demo-x1") is not None
            nowhere = DashboardEndpoint(url=path.replace("demo-head-svc", "demo-x1"), token="rays")
            with pytest.raises(NoAnswer, match="the API server does not reach"):
                await dashboard.job(nowhere, "demo-x1")


async def serve(env: RayJobEnv, address: str, port: int) -> None:
    """A Service whose only endpoint is the fake, as a pod's: the API server passes nothing on to other addresses."""
    await allow_pods(env.client, env.namespace)
    pod = {"metadata": {"name": "head"}, "spec": {"containers": [{"name": "ray-head", "image": "x"}]}}
    await env.client.create(RayPod, pod, env.namespace)
    addresses = {"podIP": address, "podIPs": [{"ip": address}], "phase": "Running"}
    await env.client.patch(RayPod, "head", {"status": addresses}, namespace=env.namespace, subresource="status")
    ports: list[dict[str, Any]] = [{"name": "dashboard", "port": port, "protocol": "TCP"}]
    service = {"metadata": {"name": "demo-head-svc"}, "spec": {"ports": ports}}
    await env.client.create(OwnedService, service, env.namespace)
    endpoint = {"kind": "Pod", "name": "head", "namespace": env.namespace}
    subset = {"addresses": [{"ip": address, "targetRef": endpoint}], "ports": ports}
    endpoints = {"metadata": {"name": "demo-head-svc"}, "subsets": [subset]}
    await env.client.create(Endpoints, endpoints, env.namespace)
