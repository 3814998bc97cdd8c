"""Clusters without work are suspended, and clusters of another operator are only looked at."""

from datetime import timedelta

from msgspec.structs import replace

from gpu_control_plane.api.ray.names import LEASE, Annotation
from gpu_control_plane.kube.lease_watch import TimedLease
from gpu_control_plane.kube.times import micro_time, utc_now
from gpu_control_plane.ray.dashboard.exchange import Exchange
from gpu_control_plane.rules.trusted_namespaces import kuberay_namespaces
from integration.ray.ray_env import RayEnv
from ray_dashboard import FakeDashboard
from unit.ray.ray_clusters import group
from waiting import until_async


async def test_a_cluster_without_work_is_suspended_and_a_person_may_resume_it(ray: RayEnv) -> None:
    await ray.stop_operator()
    async with FakeDashboard() as dashboard:
        dashboard.components = {"driver": {"is_active": "ACTIVE", "reason": "a driver"}}
        ray.where = lambda _cluster, _service: dashboard.url
        ray.exchange = Exchange(environ={}, allowed=lambda _address: True)
        await ray.start_operator()
        await ray.create(group(), annotations={Annotation.IDLE_TIMEOUT: "1h"})
        await ray.ready()
        ray.ahead = timedelta(hours=2)
        await ray.client.patch(
            type(await ray.get()), "rc", {"metadata": {"annotations": {"a": "b"}}}, namespace=ray.namespace
        )
        await until_async(lambda: _asked(dashboard), within=10)
        assert not (await ray.get()).spec.suspend
        dashboard.components = {"driver": {"is_active": "INACTIVE", "reason": None}}
        # Asked anew by a new leader, not after the half minute between two questions.
        await ray.stop_operator()
        ray.exchange = Exchange(environ={}, allowed=lambda _address: True)
        await ray.start_operator()
        await until_async(lambda: ray.says("RayClusterSuspended", "True"), within=15)
        assert "no work for 1h" in (await ray.events()).get("SuspendedIdleCluster", "no work for 1h")
        await ray.change(suspend=False)
        await ray.ready()
        await ray.quiet()
        assert not (await ray.get()).spec.suspend


async def _asked(dashboard: FakeDashboard) -> bool:
    return any("component_activities" in request for request in dashboard.requests)


async def test_while_kuberays_operator_is_active_it_only_says_so(ray: RayEnv) -> None:
    await ray.stop_operator()
    ray.settings = replace(ray.settings, trusted=kuberay_namespaces((ray.namespace,)))
    spec = {"holderIdentity": "kuberay-operator-abc", "leaseDurationSeconds": 15, "renewTime": micro_time(utc_now())}
    await ray.client.create(TimedLease, {"metadata": {"name": LEASE}, "spec": spec}, ray.namespace)
    await ray.start_operator()
    await ray.create(group())
    await until_async(lambda: ray.says("OtherOperatorActive", "True"), within=10)
    await ray.quiet()
    assert set(ray.writes) == {"PATCH rayclusters/rc/status"}
    await ray.client.delete(TimedLease, LEASE, ray.namespace)
    await ray.ready()
    assert await ray.condition("OtherOperatorActive") is None
