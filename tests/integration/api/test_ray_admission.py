"""The webhooks of Ray's kinds, called by a real API server."""

import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack

import msgspec
import pytest

from gpu_control_plane.admission import controller as admission
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.ray import RayCluster
from gpu_control_plane.api.ray.names import LEASE, Annotation, Finalizer
from gpu_control_plane.api.ray.view import AnyRayCluster, AnyRayJob
from gpu_control_plane.installation.webhooks import install
from gpu_control_plane.kube import Client, Runtime
from gpu_control_plane.kube.ca_bundle import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from gpu_control_plane.kube.errors import Forbidden, NotFound
from gpu_control_plane.kube.lease_watch import TimedLease
from gpu_control_plane.kube.times import micro_time, utc_now
from gpu_control_plane.rules.trusted_namespaces import kuberay_namespaces
from gpu_control_plane.rules.webhook_configuration import NAME
from integration.running import running
from ray_samples import changed, sample
from waiting import until_async

WORKER = "spec.workerGroupSpecs.0"
WRONG = {f"{WORKER}.minReplicas": 9}
SENTENCE = (
    "This RayCluster cannot be carried out: spec.workerGroupSpecs[0].minReplicas: 9 is more than maxReplicas, which is "
    "5: lower it, or raise maxReplicas."
)

Start = Callable[..., Coroutine[None, None, None]]


@pytest.fixture
async def start(client: Client, namespace: str) -> AsyncIterator[Start]:
    """Serves the webhooks for objects of Ray in one namespace, and returns when the API server trusts them."""
    async with AsyncExitStack() as stack:

        async def started(scope: admission.RayScope) -> None:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port: int = free.getsockname()[1]
            runtime = Runtime("test-ray-admission", config=client.config, elect=False, status_port=None)
            settings = admission.Settings(service=NAME, namespace=namespace, port=port, host="127.0.0.1", ray=scope)
            admission.build(runtime, settings)
            await stack.enter_async_context(running(runtime))
            await install(client, f"https://127.0.0.1:{port}")

            async def trusted() -> bool:
                return not (await client.get(ValidatingWebhookConfiguration, NAME)).trusts(b"")

            await until_async(trusted, within=60, saying="the API server trusts the webhooks")

        yield started
    for kind in (ValidatingWebhookConfiguration, MutatingWebhookConfiguration):
        try:
            await client.delete(kind, NAME)
        except NotFound:
            continue


async def refuses(client: Client, namespace: str) -> bool:
    """The API server takes a moment to call a webhook that it has just been told of."""
    try:
        await client.create(AnyRayCluster, changed("cluster-minimal", WRONG | {"metadata.name": "probe"}), namespace)
    except Forbidden as error:
        return SENTENCE in str(error)
    await client.delete(AnyRayCluster, "probe", namespace)
    return False


POOL = "for-ray-admission"
SCALED = {
    "metadata.name": "scaled",
    "spec.workerGroupSpecs.0.template.spec.containers.0.resources.limits": {f"gpu.deckhouse.io/{POOL}": "2"},
}


@pytest.fixture
async def pool(client: Client) -> AsyncIterator[None]:
    await client.create(GPUPool, {"metadata": {"name": POOL}, "spec": {}})
    yield
    await client.delete(GPUPool, POOL)


async def fills(client: Client, namespace: str) -> bool:
    """Whether the API server calls the webhook that fills in, and it knows the pool."""
    made = await client.create(
        AnyRayCluster, changed("cluster-autoscaler-v2", SCALED | {"metadata.name": "probe"}), namespace
    )
    await client.delete(AnyRayCluster, "probe", namespace)
    return Annotation.FILLED_GPUS.value in made.metadata.annotations


async def test_what_cannot_be_carried_out_is_refused_when_it_is_written(
    client: Client, namespace: str, start: Start
) -> None:
    wrong = await client.create(
        AnyRayCluster,
        changed("cluster-minimal", WRONG | {"metadata.name": "old", "metadata.finalizers": [Finalizer.REDIS_CLEANUP]}),
        namespace,
    )
    await start(admission.RayScope())
    await until_async(lambda: refuses(client, namespace), within=60, saying="the API server calls the webhook")
    with pytest.raises(Forbidden, match="backoffLimit: it is less than none: take 0 or more"):
        await client.create(AnyRayJob, changed("job-simple", {"spec.backoffLimit": -1}), namespace)
    made = await client.create(RayCluster, sample("cluster-minimal"), namespace)
    assert made.name == "minimal"

    # What is wrong already may be mended, marked, given a status and deleted.
    async def patch(change: dict[str, object], subresource: str | None = None) -> AnyRayCluster:
        return await client.patch(AnyRayCluster, wrong.name, change, namespace=namespace, subresource=subresource)

    await patch({"metadata": {"annotations": {"a": "b"}}})
    await patch({"spec": {"suspend": True}})
    await patch({"status": {"state": "suspended"}}, "status")
    with pytest.raises(Forbidden, match=r"spec\.authOptions\.mode: token needs Ray"):
        await patch({"spec": {"authOptions": {"mode": "token"}, "rayVersion": "2.9.0"}})
    await client.delete(AnyRayCluster, wrong.name, namespace)
    await patch({"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        await client.get(AnyRayCluster, wrong.name, namespace)


@pytest.mark.usefixtures("pool")
async def test_while_kuberays_operator_is_active_nothing_is_refused_and_nothing_filled_in(
    client: Client, namespace: str, start: Start
) -> None:
    await start(admission.RayScope(trusted=kuberay_namespaces((namespace,))))
    await until_async(lambda: refuses(client, namespace), within=60, saying="the API server calls the webhook")
    await until_async(lambda: fills(client, namespace), within=60, saying="the API server calls the other webhook")
    spec = {"holderIdentity": "them", "leaseDurationSeconds": 15, "renewTime": micro_time(utc_now())}
    await client.create(TimedLease, {"metadata": {"name": LEASE}, "spec": spec}, namespace)
    try:

        async def taken() -> bool:
            return not await refuses(client, namespace)

        await until_async(taken, saying="what is wrong is taken")
        assert not await fills(client, namespace)
    finally:
        await client.delete(TimedLease, LEASE, namespace)


async def test_objects_elsewhere_are_not_judged(client: Client, namespace: str, start: Start) -> None:
    await start(admission.RayScope(namespaces=(namespace,)))
    await until_async(lambda: refuses(client, namespace), within=60, saying="the API server calls the webhook")
    assert not await refuses(client, "default")


def first_params(cluster: RayCluster) -> dict[str, str]:
    return cluster.spec.worker_group_specs[0].ray_start_params


@pytest.mark.usefixtures("pool")
async def test_what_the_autoscaler_would_not_see_is_filled_in(client: Client, namespace: str, start: Start) -> None:
    manifest = changed("cluster-autoscaler-v2", SCALED)
    before = await client.create(
        RayCluster, changed("cluster-autoscaler-v2", SCALED | {"metadata.name": "b"}), namespace
    )
    await start(admission.RayScope())
    await until_async(lambda: fills(client, namespace), within=60, saying="the API server calls the webhook")
    made = await client.create(RayCluster, manifest, namespace)
    own = first_params(before)
    assert first_params(made) == own | {"num-gpus": "2"}

    # Other cards: as an autoscaler or an editor sends it, with our value, and as a manifest has it, without.
    async def patch(change: dict[str, object], name: str = "scaled", subresource: str | None = None) -> RayCluster:
        return await client.patch(RayCluster, name, change, namespace=namespace, subresource=subresource)

    async def with_group(cluster: RayCluster, cards: str, params: dict[str, str]) -> RayCluster:
        groups = msgspec.to_builtins(cluster.spec.worker_group_specs)
        groups[0]["rayStartParams"] = params
        groups[0]["template"]["spec"]["containers"][0]["resources"]["limits"] = {f"gpu.deckhouse.io/{POOL}": cards}
        return await patch({"spec": {"workerGroupSpecs": groups}})

    assert first_params(await with_group(made, "4", own | {"num-gpus": "2"})) == own | {"num-gpus": "4"}
    assert first_params(await with_group(made, "3", own)) == own | {"num-gpus": "3"}
    assert first_params(await with_group(made, "4", own | {"num-gpus": "1"})) == own | {"num-gpus": "1"}
    assert first_params(await with_group(made, "2", own | {"num-gpus": "1"})) == own | {"num-gpus": "1"}

    # What was written while nobody answered is filled in with the next change of the spec, and by no status.
    assert first_params(await patch({"status": {"state": "ready"}}, "b", "status")) == own
    assert first_params(await patch({"spec": {"rayVersion": "2.60.1"}}, "b")) == own | {"num-gpus": "2"}
