"""Uninstalling takes our CRDs away, and never a ClusterPolicy, an NVIDIADriver, an object of Ray or another product's
CRD."""

from collections.abc import Callable

from gpu_control_plane.api.nvidia import DEFINITIONS, StoredClusterPolicy
from gpu_control_plane.api.ray import RayCluster
from gpu_control_plane.installation.crds import INSTALLED, install
from gpu_control_plane.installation.uninstall import clean_up
from gpu_control_plane.kube import Client, FieldManager, load_config
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.local import Cluster
from integration.api.crds import crd_is_gone, foreign
from ray_samples import sample
from unit.api.nvidia.stock import stock_policy
from waiting import until_async


async def test_policies_and_the_crds_of_others_stay(own_api_server: Callable[..., Cluster]) -> None:
    policies, drivers = DEFINITIONS
    async with Client(load_config(own_api_server().kubeconfig)) as client:
        await install(client)
        await client.create(StoredClusterPolicy, stock_policy())
        await client.create(RayCluster, sample("cluster-minimal"), "default")
        await client.apply(CustomResourceDefinition, drivers.name, foreign(drivers), manager=FieldManager("helm"))

        sentences = await _clean_up(client)
        assert (
            f"{policies.name} stays: cluster-policy would go with it. Delete it first if it is not needed." in sentences
        )
        clusters = RayCluster.resource.qualified_name
        assert f"{clusters} stays: default/minimal would go with it. Delete it first if it is not needed." in sentences
        assert sentences[-1] == f"CRDs deleted: {len(INSTALLED) - 3}."
        for name in (policies.name, drivers.name, clusters):
            assert not (await client.get(CustomResourceDefinition, name)).deleting
        assert not (await client.get(StoredClusterPolicy, "cluster-policy")).deleting

        await client.delete(StoredClusterPolicy, "cluster-policy")
        await _clean_up(client)
        await until_async(lambda: crd_is_gone(client, policies.name), saying="our CRD without objects is gone")
        assert not await crd_is_gone(client, drivers.name)


async def _clean_up(client: Client) -> list[str]:
    sentences: list[str] = []
    await clean_up(client, feature_labels=False, crds=True, timeout=0, report=sentences.append)
    return sentences
