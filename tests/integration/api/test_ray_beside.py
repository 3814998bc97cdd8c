"""Beside KubeRay's own CRDs, and after an uninstall: what others installed stays, and nobody's cluster is lost."""

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime, timedelta

import pytest

from gpu_control_plane import __version__
from gpu_control_plane.api import crd_manifest, ray
from gpu_control_plane.api.namespace import Namespace
from gpu_control_plane.api.ray import RayCluster
from gpu_control_plane.api.ray.names import LEASE, Finalizer
from gpu_control_plane.api.ray.view import AnyRayCluster, AnyRayJob
from gpu_control_plane.installation.crds import INSTALLED, MANAGER, install
from gpu_control_plane.installation.kuberay_check import UnbelievedKubeRay, check_kuberay
from gpu_control_plane.installation.uninstall import clean_up
from gpu_control_plane.kube import Client, FieldManager
from gpu_control_plane.kube.access_review import Right, SubjectAccessReview, service_account, spec_of
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.lease_watch import TimedLease
from gpu_control_plane.kube.times import micro_time, utc_now
from gpu_control_plane.ray.owned import RayPod
from integration.api.crds import foreign, remove_crd
from integration.rbac import GROUP as RBAC
from integration.rbac import ClusterRole, ClusterRoleBinding, RoleBinding, ServiceAccount
from ray_samples import changed, sample
from waiting import until_async

CLUSTERS = ray.DEFINITIONS[0]
LEFT_ALONE = "left alone. Another product installed it. Remove it, or install with take_over to replace it."


@pytest.fixture
async def restored(client: Client) -> AsyncIterator[None]:
    yield
    await remove_crd(client, CLUSTERS.name)
    for definition in INSTALLED:
        await client.apply(CustomResourceDefinition, definition.name, crd_manifest(definition), manager=MANAGER)
    await install(client)


async def test_a_crd_of_kuberay_and_its_clusters_stay_until_it_is_taken_over(
    client: Client, namespace: str, restored: None
) -> None:
    await remove_crd(client, CLUSTERS.name)
    before = await client.apply(
        CustomResourceDefinition, CLUSTERS.name, foreign(CLUSTERS), manager=FieldManager("helm")
    )
    await until_async(lambda: _is_served(client), saying="the kind is served")
    await client.create(RayCluster, sample("cluster-full"), namespace)
    for version in (__version__, "999.0.0"):
        sentences = await install(client, version=version)
        assert f"{CLUSTERS.name}: {LEFT_ALONE}" in sentences
        assert "rayjobs.ray.io: left alone" not in " ".join(sentences)
        await _back(client)
    kept = await client.get(CustomResourceDefinition, CLUSTERS.name)
    assert kept.metadata.generation == before.metadata.generation
    # An object that only theirs takes is no reason to lose others.
    await client.create(AnyRayCluster, changed("cluster-minimal", {"spec.rayVersion": 2.6}), namespace)
    assert [one.name for one in await client.list(RayCluster)] == ["full"]
    assert f"{CLUSTERS.name}: updated" in await install(client, take_over=True)
    assert (await client.get(RayCluster, "full", namespace)).spec.worker_group_specs[0].group_name == "cpu-workers"


async def test_an_uninstall_lets_objects_of_ray_go_and_takes_none(client: Client, namespace: str) -> None:
    held = {"metadata.finalizers": [Finalizer.REDIS_CLEANUP.value, "example.com/mine"]}
    await client.create(RayCluster, changed("cluster-minimal", held), namespace)
    await client.create(AnyRayJob, changed("job-simple", {"metadata.finalizers": [Finalizer.JOB.value]}), namespace)
    now = micro_time(utc_now())
    spec = {"holderIdentity": "them", "leaseDurationSeconds": 15, "renewTime": now}
    await client.create(TimedLease, {"metadata": {"name": LEASE}, "spec": spec}, namespace)
    try:
        said = " ".join(await _clean_up(client))
        assert f"Finalizers left on objects of Ray in {namespace}: KubeRay's Lease is held there." in said
        assert f"kubectl -n {namespace} delete lease {LEASE}" in said
    finally:
        await client.delete(TimedLease, LEASE, namespace)
    assert "Finalizers taken off objects of Ray: 2." in await _clean_up(client)
    assert (await client.get(AnyRayCluster, "minimal", namespace)).metadata.finalizers == ("example.com/mine",)
    await client.delete(AnyRayJob, "simple", namespace)
    await until_async(lambda: _is_gone(client, namespace), saying="the RayJob is gone")
    await client.patch(AnyRayCluster, "minimal", {"metadata": {"finalizers": None}}, namespace=namespace)


async def test_ray_is_not_installed_beside_a_kuberay_that_would_not_be_believed(client: Client, namespace: str) -> None:
    now = utc_now()
    binding = await _run_operator(client, namespace, now)
    try:
        # As much as a tenant can do: a holder that lives, and may write RayClusters of his own namespace.
        await client.create(RoleBinding, binding, namespace)
        own = Right.of("update", "rayclusters.ray.io/status", namespace=namespace)
        await until_async(lambda: _may(client, namespace, own), saying="it may write in its namespace")
        (noticed,) = await check_kuberay(client, "gpu", (), now)
        assert f"kubectl -n {namespace} delete lease {LEASE}" in noticed
        await client.create(ClusterRoleBinding, binding)
        everywhere = Right.of("update", "rayclusters.ray.io/status")
        await until_async(lambda: _may(client, namespace, everywhere), saying="it may write everywhere")
        with pytest.raises(UnbelievedKubeRay, match=rf"ray\.kuberayNamespaces=\{{{namespace}\}}"):
            await check_kuberay(client, "gpu", (), now)
        assert await check_kuberay(client, "gpu", (namespace,), now) == []
        assert await check_kuberay(client, "gpu", (), now + timedelta(hours=1)) == []
    finally:
        await client.delete(TimedLease, LEASE, namespace)
        await client.delete(ClusterRole, namespace)
        with suppress(NotFound):
            await client.delete(ClusterRoleBinding, namespace)


async def test_a_lease_of_a_tenant_keeps_no_finalizers_of_others(client: Client, namespace: str) -> None:
    """One of an operator does, wherever that may write."""
    other = f"{namespace}-others"
    await client.create(Namespace, {"metadata": {"name": other}})
    held = {"metadata.finalizers": [Finalizer.JOB.value]}
    for place in (namespace, other):
        await client.create(AnyRayJob, changed("job-simple", held), place)
    binding = await _run_operator(client, namespace, utc_now())
    try:
        await client.create(RoleBinding, binding, namespace)
        await client.create(ClusterRoleBinding, binding)
        everywhere = Right.of("update", "rayclusters.ray.io/status")
        await until_async(lambda: _may(client, namespace, everywhere), saying="it may write everywhere")
        said = " ".join(await _clean_up(client))
        assert f"Finalizers left on objects of Ray: KubeRay's operator runs in {namespace}." in said
        assert f"kubectl -n {namespace} delete lease {LEASE}" in said
        assert "taken off objects of Ray" not in said
        await client.delete(ClusterRoleBinding, namespace)
        await until_async(lambda: _may_not(client, namespace, everywhere), saying="it is a tenant's")
        assert "Finalizers taken off objects of Ray: 1." in await _clean_up(client)
    finally:
        await client.delete(TimedLease, LEASE, namespace)
        await client.delete(ClusterRole, namespace)
        with suppress(NotFound):
            await client.delete(ClusterRoleBinding, namespace)
    assert (await client.get(AnyRayJob, "simple", other)).metadata.finalizers == ()
    assert (await client.get(AnyRayJob, "simple", namespace)).metadata.finalizers == (Finalizer.JOB.value,)
    await client.patch(AnyRayJob, "simple", {"metadata": {"finalizers": None}}, namespace=namespace)
    for place in (namespace, other):
        await client.delete(AnyRayJob, "simple", place)


async def _run_operator(client: Client, namespace: str, now: datetime) -> dict[str, object]:
    """A pod that holds KubeRay's Lease. What is returned lets it write RayClusters, in a namespace or in all."""
    await _hold_lease(client, namespace, "operator-1_them", now)
    await client.create(ServiceAccount, {"metadata": {"name": "operator"}}, namespace)
    spec = {"serviceAccountName": "operator", "containers": [{"name": "main", "image": "kuberay"}]}
    await client.create(RayPod, {"metadata": {"name": "operator-1"}, "spec": spec}, namespace)
    rules = [{"apiGroups": ["ray.io"], "resources": ["rayclusters/status"], "verbs": ["update"]}]
    await client.create(ClusterRole, {"metadata": {"name": namespace}, "rules": rules})
    return {
        "metadata": {"name": namespace},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": namespace},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
    }


async def _may_not(client: Client, namespace: str, right: Right) -> bool:
    return not await _may(client, namespace, right)


async def _may(client: Client, namespace: str, right: Right) -> bool:
    spec = spec_of(right, service_account(namespace, "operator"))
    return (await client.create(SubjectAccessReview, {"spec": spec})).status.allowed


async def test_a_lease_that_nobody_holds_keeps_ray_from_no_cluster(client: Client, namespace: str) -> None:
    now = utc_now()
    await _hold_lease(client, namespace, "them", now)
    try:
        (noticed,) = await check_kuberay(client, "gpu", (), now)
        assert "Its holder them is no pod" in noticed
    finally:
        await client.delete(TimedLease, LEASE, namespace)


async def _hold_lease(client: Client, namespace: str, holder: str, now: datetime) -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": micro_time(now)}
    await client.create(TimedLease, {"metadata": {"name": LEASE}, "spec": spec}, namespace)


async def test_an_uninstall_touches_ray_only_where_ours_looked_after_it(client: Client, namespace: str) -> None:
    """A KubeRay beside ours has the other namespaces, whether it runs at the moment or not."""
    other = f"{namespace}-theirs"
    await client.create(Namespace, {"metadata": {"name": other}})
    held = {"metadata.finalizers": [Finalizer.JOB.value]}
    for place in (namespace, other):
        await client.create(AnyRayJob, changed("job-simple", held), place)
    assert "Finalizers taken off objects of Ray: 1." in await _clean_up(client, namespace)
    binding = await _run_operator(client, other, utc_now())
    try:
        await client.create(RoleBinding, binding, namespace)
        right = Right.of("update", "rayclusters.ray.io/status", namespace=namespace)
        await until_async(lambda: _may(client, other, right), saying="theirs may write where ours looked after Ray")
        await client.patch(
            AnyRayJob, "simple", {"metadata": {"finalizers": [Finalizer.JOB.value]}}, namespace=namespace
        )
        kept = f"Finalizers left on objects of Ray: KubeRay's operator runs in {other}."
        assert kept in " ".join(await _clean_up(client, namespace))
        assert "Finalizers taken off objects of Ray: 1." in await _clean_up(client, namespace, single=True)
    finally:
        await client.delete(TimedLease, LEASE, other)
        await client.delete(ClusterRole, other)
    assert (await client.get(AnyRayJob, "simple", other)).metadata.finalizers == (Finalizer.JOB.value,)
    assert (await client.get(AnyRayJob, "simple", namespace)).metadata.finalizers == ()
    await client.patch(AnyRayJob, "simple", {"metadata": {"finalizers": None}}, namespace=other)
    for place in (namespace, other):
        await client.delete(AnyRayJob, "simple", place)


async def _clean_up(client: Client, *namespaces: str, single: bool = False) -> list[str]:
    sentences: list[str] = []
    await clean_up(
        client,
        "nowhere",
        feature_labels=False,
        crds=False,
        timeout=0,
        operand_namespace="",
        ray_namespaces=namespaces,
        ray_single_namespace=single,
        report=sentences.append,
    )
    return sentences


async def _back(client: Client) -> None:
    """Take our other CRDs back to this release."""
    for definition in INSTALLED:
        if definition is not CLUSTERS:
            await client.apply(CustomResourceDefinition, definition.name, crd_manifest(definition), manager=MANAGER)


async def _is_served(client: Client) -> bool:
    try:
        await client.list(AnyRayCluster)
    except NotFound:
        return False
    return True


async def _is_gone(client: Client, namespace: str) -> bool:
    try:
        await client.get(AnyRayJob, "simple", namespace)
    except NotFound:
        return True
    return False
