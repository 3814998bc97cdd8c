"""On a cluster that looks like OpenShift: its kinds are there, its machines are not."""

import asyncio
from collections.abc import Callable
from typing import Any

from gpu_control_plane.api.install import install
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube import Client, Runtime, Selection, load_config
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.kube.objects import Resource
from gpu_control_plane.local import Cluster
from gpu_control_plane.operator.controller import Options, build
from gpu_control_plane.operator.openshift import ClusterVersion, ImageStream, Proxy
from gpu_control_plane.operator.stack.live import LiveDaemonSet, LiveSecurityContextConstraints
from integration.conftest import Namespace
from unit.api.nvidia.stock import stock_policy
from waiting import until_async

NAMESPACE = "nvidia-gpu-operator"
RELEASE = "414.92.202309282257"
TOOLKIT = "example.com/driver-toolkit@sha256:1111"


def definition(resource: Resource) -> dict[str, Any]:
    """A CRD that takes everything: the API is what matters here."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "metadata": {"name": resource.qualified_name},
        "spec": {
            "group": resource.group,
            "names": {"kind": resource.kind, "plural": resource.plural, "singular": resource.kind.lower()},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [
                {"name": resource.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


async def furnish(client: Client) -> None:
    """What a newly installed OpenShift has, as far as the stack looks at it."""
    await install(client)
    kinds = (ClusterVersion, Proxy, ImageStream, LiveSecurityContextConstraints)
    for kind in kinds:
        await client.create(CustomResourceDefinition, definition(kind.resource))
    for name in (NAMESPACE, "openshift"):
        await client.create(Namespace, {"metadata": {"name": name}})

    async def served() -> bool:
        found = await client.list(CustomResourceDefinition)
        return all(
            held is not None and held.status == "True" for held in (item.condition("Established") for item in found)
        )

    await until_async(served)
    history = [{"state": "Completed", "version": "4.20.3"}]
    await client.create(ClusterVersion, {"metadata": {"name": "version"}, "status": {"history": history}})
    await client.create(Proxy, {"metadata": {"name": "cluster"}, "spec": {"httpsProxy": "http://proxy:3128"}})
    tags = [{"name": RELEASE, "from": {"kind": "DockerImage", "name": TOOLKIT}}]
    stream = {"metadata": {"name": "driver-toolkit", "namespace": "openshift"}, "spec": {"tags": tags}}
    await client.create(ImageStream, stream, "openshift")
    labels = {
        "feature.node.kubernetes.io/pci-10de.present": "true",
        str(NodeLabel.OS_ID): "rhcos",
        str(NodeLabel.OS_VERSION): "4.20",
        str(NodeLabel.OSTREE): RELEASE,
        str(NodeLabel.KERNEL): "5.14.0-570.el9.x86_64",
    }
    await client.create(Node, {"metadata": {"name": "worker", "labels": labels}})


async def test_the_driver_is_built_in_the_toolkit_of_the_release(own_api_server: Callable[..., Cluster]) -> None:
    cluster = await asyncio.to_thread(own_api_server)
    async with Client(load_config(cluster.kubeconfig)) as client:
        await furnish(client)
        policy = stock_policy()
        policy["spec"]["operator"].pop("use_ocp_driver_toolkit")
        await client.create(StoredClusterPolicy, policy)
        runtime = Runtime("operator", config=load_config(cluster.kubeconfig), elect=False, status_port=None)
        build(runtime, Options(namespace=NAMESPACE, images={"VALIDATOR_IMAGE": "example.com/validator:v1"}))
        running = asyncio.create_task(runtime.run())
        found: dict[str, LiveDaemonSet] = {}

        async def rendered() -> bool:
            nonlocal found
            items = await client.list(LiveDaemonSet, Selection(namespace=NAMESPACE))
            found = {item.name: item for item in items}
            return f"nvidia-driver-daemonset-{RELEASE}" in found

        await until_async(rendered, within=60)
        driver = found[f"nvidia-driver-daemonset-{RELEASE}"].spec or {}
        containers = {part["name"]: part for part in driver["template"]["spec"]["containers"]}
        variables = {item["name"]: item.get("value") for item in containers["nvidia-driver-ctr"]["env"]}
        assert containers["openshift-driver-toolkit-ctr"]["image"] == TOOLKIT
        assert variables["OPENSHIFT_VERSION"].startswith("4.20")
        assert variables["HTTPS_PROXY"] == "http://proxy:3128"

        async def allowed() -> bool:
            constraints = await client.list(LiveSecurityContextConstraints)
            return any(
                user == f"system:serviceaccount:{NAMESPACE}:nvidia-driver"
                for item in constraints
                for user in item.users or ()
            )

        await until_async(allowed, within=60)
        runtime.stop()
        await running
