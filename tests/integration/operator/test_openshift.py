"""On a cluster that looks like OpenShift: its kinds are there, its machines are not."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fault_proxy import Fault, FaultProxy, Request
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, Runtime, Selection, load_config
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.kube.errors import NotFound, TooManyRequests
from gpu_control_plane.kube.objects import Resource
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.operator.controller import OperatorSettings, build
from gpu_control_plane.operator.openshift import ClusterVersion, ImageStream, OpenShiftWatch, Proxy
from gpu_control_plane.operator.stack.live import LiveDaemonSet, LiveSecurityContextConstraints
from integration.conftest import Namespace
from integration.running import running
from unit.api.nvidia.stock import stock_driver, stock_policy
from waiting import until_async

NAMESPACE = "nvidia-gpu-operator"
RELEASE = "414.92.202309282257"
TOOLKIT = "example.com/driver-toolkit@sha256:1111"
CONTROL_PLANE = (Component.ETCD, Component.APISERVER)


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
        try:
            for kind in kinds:
                await client.list(kind)
        except (NotFound, TooManyRequests):
            return False
        return True

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


@pytest.fixture(scope="module")
def openshift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("openshift")
    with Cluster(folder, ensure_binaries(CONTROL_PLANE), Settings(components=CONTROL_PLANE)) as cluster:
        asyncio.run(_furnished(cluster))
        yield cluster


async def _furnished(cluster: Cluster) -> None:
    async with Client(load_config(cluster.kubeconfig)) as client:
        await furnish(client)


@asynccontextmanager
async def looking(cluster: Cluster, fault: Fault) -> AsyncIterator[OpenShiftWatch]:
    """A process that finds out where it runs, at an API server with a fault."""
    async with FaultProxy.before(load_config(cluster.kubeconfig)) as proxy:
        proxy.plant(fault)
        runtime = Runtime("test-openshift", config=proxy.config, elect=False, status_port=None)
        watch = OpenShiftWatch(runtime)
        async with running(runtime):
            yield watch


def _beside_the_release(request: Request) -> bool:
    return "/proxies" in request.path or "/imagestreams" in request.path


async def test_openshift_is_detected_only_when_proxy_and_images_have_been_read(openshift: Cluster) -> None:
    late = Fault(when=_beside_the_release, times=math.inf, delay=0.5)
    async with looking(openshift, late) as watch, asyncio.timeout(30):
        await watch.detected.wait()
        facts = watch.current()
        assert facts is not None
        assert facts.proxy == {"HTTPS_PROXY": "http://proxy:3128"}
        assert facts.toolkit_images == {RELEASE: TOOLKIT}


@pytest.mark.parametrize("status", [403, 404], ids=["no permission", "no such kind"])
async def test_objects_that_may_not_be_read_are_not_waited_for(openshift: Cluster, status: int) -> None:
    refused = Fault(when=_beside_the_release, times=math.inf, status=status)
    async with looking(openshift, refused) as watch, asyncio.timeout(30):
        await watch.detected.wait()
        facts = watch.current()
        assert facts is not None
        assert (facts.version, facts.proxy, facts.toolkit_images) == ("4.20.3", {}, {})


@pytest.fixture
async def cluster(openshift: Cluster) -> AsyncIterator[Cluster]:
    """OpenShift without a stack, before and after the test."""
    yield openshift
    async with Client(load_config(openshift.kubeconfig)) as client:
        for kind in (StoredClusterPolicy, StoredNVIDIADriver):
            for item in await client.list(kind):
                await client.delete(kind, item.name)
        for daemonset in await client.list(LiveDaemonSet, Selection(namespace=NAMESPACE)):
            await client.delete(LiveDaemonSet, daemonset.name, NAMESPACE)


async def test_the_driver_is_built_in_the_toolkit_of_the_release(cluster: Cluster) -> None:
    async with Client(load_config(cluster.kubeconfig)) as client:
        policy = stock_policy()
        policy["spec"]["operator"].pop("use_ocp_driver_toolkit")
        await client.create(StoredClusterPolicy, policy)
        runtime = Runtime("operator", config=load_config(cluster.kubeconfig), elect=False, status_port=None)
        build(runtime, OperatorSettings(namespace=NAMESPACE, images={"VALIDATOR_IMAGE": "example.com/validator:v1"}))
        async with running(runtime):
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


async def test_no_driver_is_created_before_the_platform_is_detected(cluster: Cluster) -> None:
    config = load_config(cluster.kubeconfig)
    async with Client(config) as client, FaultProxy.before(config) as proxy:
        proxy.plant(Fault(when=lambda request: "clusterversions" in request.path, times=math.inf, delay=1.5))
        policy = stock_policy()
        policy["spec"]["operator"].pop("use_ocp_driver_toolkit")
        policy["spec"]["driver"]["useNvidiaDriverCRD"] = True
        await client.create(StoredNVIDIADriver, stock_driver())
        await client.create(StoredClusterPolicy, policy)
        runtime = Runtime("operator", config=proxy.config, elect=False, status_port=None)
        build(runtime, OperatorSettings(namespace=NAMESPACE, images={"VALIDATOR_IMAGE": "example.com/validator:v1"}))

        async def built_in_toolkit() -> bool:
            items = await client.list(LiveDaemonSet, Selection(namespace=NAMESPACE))
            specs = [(item.spec or {})["template"]["spec"] for item in items]
            return any(part["image"] == TOOLKIT for spec in specs for part in spec["containers"])

        async with running(runtime):
            await until_async(built_in_toolkit, within=60)
        writes = [request for request in proxy.writes if "/daemonsets" in request.path]
        made = [request for request in writes if request.path.endswith("/daemonsets")]
        assert len(made) == len(await client.list(LiveDaemonSet, Selection(namespace=NAMESPACE)))
        assert writes == made
