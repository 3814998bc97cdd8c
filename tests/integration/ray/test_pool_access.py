"""A RayCluster gets pods into a pool only where its namespace may use it: the operator lends nothing of its own."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.local import Cluster
from integration.access.env import AccessEnv, pool
from integration.ray.ray_env import gpu_group, ray_env
from integration.tenant import impersonating
from waiting import until_async

OPERATOR = "ray-operator"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULES = [
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
    {
        "apiGroups": ["", "ray.io", "batch", "networking.k8s.io", "events.k8s.io"],
        "resources": ["*"],
        "verbs": ["create", "update", "patch", "delete"],
    },
]
"""Every right on what the operator makes, and none to use a pool."""


async def test_pods_are_refused_where_the_namespace_has_no_access(
    own_api_server: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = own_api_server()
    access = AccessEnv(cluster)
    async with Client(load_config(cluster.kubeconfig)) as client:
        await install(client)
        await asyncio.to_thread(access.prepare)
        _give_rights(access)
        operator = load_config(impersonating(OPERATOR, cluster.kubeconfig, tmp_path))
        held = pool("training", access={"namespaces": ["research"]})
        await asyncio.to_thread(access.pools, [held])
        async with ray_env(client, "plain", operator) as plain, ray_env(client, "research", operator) as research:
            resource = await plain.pool("training", total=4)
            for env in (plain, research):
                await env.start_operator()
                await env.create(gpu_group(resource, 2))
            await research.ready()
            await until_async(lambda: plain.says("ReplicaFailure", "True"), within=10)
            said = await plain.condition("ReplicaFailure")
            assert said is not None
            assert "the GPU pool training admits neither the namespace plain, nor the service account" in said.message
            assert [pod.group for pod in await plain.pods()] == ["headgroup"]
            # Access comes: the cluster is tried again by itself, and at once after a change.
            opened = pool("training", access={"namespaces": ["research", "plain"]})
            await asyncio.to_thread(access.pools, [opened])
            await plain.change_groups(gpu_group(resource, 2, maxReplicas=3))
            await plain.ready()
            await client.delete(GPUPool, "training")
    access.close()


def _give_rights(access: AccessEnv) -> None:
    role = {"metadata": {"name": OPERATOR}, "rules": RULES}
    assert access.request("POST", f"{RBAC}/clusterroles", role).admitted
    binding = {
        "metadata": {"name": OPERATOR},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": OPERATOR},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": OPERATOR}],
    }
    assert access.request("POST", f"{RBAC}/clusterrolebindings", binding).admitted
