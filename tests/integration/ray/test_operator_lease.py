"""The Lease of KubeRay's operator on a real API server: believed where no user is, and nowhere else."""

from collections.abc import AsyncIterator

import pytest

from gpu_control_plane.api.ray.names import LEASE
from gpu_control_plane.kube import Client, Runtime
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.lease_watch import TimedLease
from gpu_control_plane.kube.times import micro_time, utc_now
from gpu_control_plane.ray.components import KubeRayLease
from gpu_control_plane.rules.trusted_namespaces import kuberay_namespaces
from integration.running import running
from waiting import until

OTHER = "default"


@pytest.fixture
async def theirs(client: Client, namespace: str) -> AsyncIterator[str]:
    yield namespace
    for place in (namespace, OTHER):
        try:
            await client.delete(TimedLease, LEASE, place)
        except NotFound:
            continue


async def test_kuberays_operator_is_active_while_it_holds_its_lease_where_no_user_is(
    client: Client, theirs: str
) -> None:
    runtime = Runtime("test-kuberay-lease", config=client.config, elect=False, status_port=None)
    lease = KubeRayLease(runtime, kuberay_namespaces(more=(theirs,)).include)
    fired: list[str] = []
    lease.changed.on_change(lambda _old, _new: fired.append(getattr(lease.active(), "holder", "none")))
    spec = {"holderIdentity": "them", "leaseDurationSeconds": 15, "renewTime": micro_time(utc_now())}
    async with running(runtime):
        await client.create(TimedLease, {"metadata": {"name": LEASE}, "spec": spec | {"holderIdentity": "user"}}, OTHER)
        await client.create(TimedLease, {"metadata": {"name": LEASE}, "spec": spec}, theirs)
        await until(lambda: fired == ["them"])
        await client.delete(TimedLease, LEASE, theirs)
        await until(lambda: fired == ["them", "none"])
        assert lease.active() is None
