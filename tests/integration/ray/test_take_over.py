"""Taking over from KubeRay's operator on a real API server: no pod of Ray goes. The tests act as KubeRay's pods."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from gpu_control_plane import DEFAULT_NAMESPACE as OURS
from gpu_control_plane.actions.ray_migration.installation import KUBERAY, RaySettings, kuberay_settings, read_ray
from gpu_control_plane.actions.ray_migration.plan import plan_ray_migration
from gpu_control_plane.actions.ray_migration.verify import verify_take_over
from gpu_control_plane.api.ray.names import LEASE, Annotation
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import AlreadyExists, NotFound
from gpu_control_plane.kube.lease_watch import TimedLease
from gpu_control_plane.migration.deployment import ConfigMap, Deployment, ReplicaSet
from gpu_control_plane.migration.operator_switch import find_operator, give_back, take_over
from gpu_control_plane.ray.options import OPERATOR_VERSION
from gpu_control_plane.ray.owned import RayPod
from integration.conftest import Namespace
from integration.operator.test_migration import NvidiasOperator, held
from integration.ray.ray_env import RayEnv
from unit.ray.ray_clusters import group
from waiting import until_async

PLACE = "kuberay-operator"


class KubeRaysOperator(NvidiasOperator):
    """The same as NVIDIA's, but for its labels and its Lease."""

    async def begin(self, replicas: int = 1) -> None:
        await self.start(replicas, {"app.kubernetes.io/name": "kuberay-operator"}, lease=False)
        await held(self.client, LEASE, self.namespace, f"{self.pod}_1f2e")


@pytest.fixture
async def kuberay(client: Client) -> AsyncIterator[KubeRaysOperator]:
    with suppress(AlreadyExists):
        await client.create(Namespace, {"metadata": {"name": PLACE}})
    yield KubeRaysOperator(client, PLACE)
    for kind, name in ((TimedLease, LEASE), (Deployment, "gpu-operator"), (ReplicaSet, "gpu-operator-1")):
        with suppress(NotFound):
            await client.delete(kind, name, PLACE)


async def test_no_pod_of_ray_goes_when_our_operator_takes_over(
    client: Client, ray: RayEnv, kuberay: KubeRaysOperator
) -> None:
    """Made with the strategy Recreate, under which a hash that is written otherwise would end all of them."""
    await ray.create(group("cpu", replicas=2), upgradeStrategy={"type": "Recreate"})
    await ray.ready()
    await ray.stop_operator()
    (head,) = [pod for pod in await ray.pods() if pod.is_head]
    marks = {Annotation.KUBERAY_VERSION.value: "v1.7.0", Annotation.RECREATE_HASH.value: "WRITTENOTHERWISE"}
    await client.patch(RayPod, head.name, {"metadata": {"annotations": marks}}, namespace=ray.namespace)
    await kuberay.begin()
    await ray.start_operator()
    await until_async(lambda: ray.says("OtherOperatorActive", "True"), saying="it writes nothing")

    found = await read_ray(client, OURS)
    planned = plan_ray_migration(found)
    (change,) = [each for each in planned.objects if each.namespace == ray.namespace]
    assert (change.outcome, change.harmful) == ("it goes on as it is; its head is noted to be of this operator", False)
    assert planned.operators == (f"{PLACE}/gpu-operator",)
    assert planned.holder is not None

    before = await ray.pods()
    operator = await find_operator(client, KUBERAY, OURS, None)
    taking = asyncio.create_task(take_over(client, KUBERAY, operator, OURS))
    await kuberay.end_pods()
    done = await taking
    assert (done.replicas, done.lease_deleted, done.other_holder) == (1, True, None)
    verified = await verify_take_over(client, before, progress=lambda _text: None, timeout=20)
    assert verified.begun
    assert (verified.pods, verified.gone, verified.restarted) == (3, (), ())

    async def noted() -> bool:
        (held,) = [pod for pod in await ray.pods() if pod.is_head]
        return held.metadata.annotations[Annotation.KUBERAY_VERSION] == OPERATOR_VERSION

    await until_async(noted, saying="the head is noted to be ours")
    await ray.quiet()
    assert {pod.metadata.uid for pod in await ray.pods()} == {pod.metadata.uid for pod in before}
    back = await give_back(client, await find_operator(client, KUBERAY, OURS, None))
    assert back.replicas == 1


async def test_the_configuration_file_of_kuberay_is_read(client: Client, kuberay: KubeRaysOperator) -> None:
    """Its chart makes one with `configuration.enabled`: its flags then say nothing."""
    await kuberay.begin()
    args = {"name": "gpu-operator", "image": "x", "args": ["--config", "/etc/kuberay/config.yaml"]}
    volume = {"name": "operator-config", "configMap": {"name": "kuberay-operator-config"}}
    pods = {"containers": [args], "volumes": [volume]}
    await client.patch(Deployment, "gpu-operator", {"spec": {"template": {"spec": pods}}}, namespace=PLACE)
    found = await read_ray(client, OURS)
    assert list(found.configurations.values()) == [None]
    file = "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nwatchNamespace: a,b\n"
    await client.create(
        ConfigMap, {"metadata": {"name": "kuberay-operator-config"}, "data": {"config.yaml": file}}, PLACE
    )
    try:
        found = await read_ray(client, OURS)
    finally:
        await client.delete(ConfigMap, "kuberay-operator-config", PLACE)
    (theirs,) = [kuberay_settings(one, found.configurations[one.key]) for one in found.deployments]
    assert theirs == RaySettings(watch_namespaces=frozenset({"a", "b"}))


async def test_a_pod_that_goes_meanwhile_is_named(client: Client, ray: RayEnv) -> None:
    await ray.create(group("cpu", replicas=1))
    await ray.ready()
    before = await ray.pods()
    (worker,) = await ray.pods(group="cpu")
    await ray.stop_operator()
    await ray.life.end(worker.name)
    verified = await verify_take_over(client, before, progress=lambda _text: None, timeout=20)
    assert verified.gone == (f"{ray.namespace}/{worker.name}",)
