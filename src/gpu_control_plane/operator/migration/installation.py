"""What runs of NVIDIA's operator in a cluster, and of ours: read once, for a plan or a change of hands."""

import asyncio
import re
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec

from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NAMESPACE
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.kube import Client, Object, Resource, Selection
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.operator.cluster_policy import winner
from gpu_control_plane.operator.nvidia_lease import SELECTION, Rival, TimedLease, judge
from gpu_control_plane.operator.stack.live import LiveDaemonSet
from gpu_control_plane.operator.views import OperandPod, Pod, controller_of

OURS: Final = "gpu-control-plane"
"""Name of the Lease that our controllers hold."""
BEFORE: Final = "gpu.deckhouse.io/replicas-before-take-over"
"""Annotation of the Deployment of NVIDIA's operator: how many replicas it had."""
_CONTROLLER: Final = "gpu-control-plane-controller"
_DRIVER_PODS: Final = (
    "app in (nvidia-driver-daemonset,nvidia-vgpu-manager-daemonset)",
    "app.kubernetes.io/component=nvidia-driver",
    "openshift.driver-toolkit=true",
)
"""Pods of drivers have any of these labels."""
_MARKS: Final = ("app=gpu-operator", "app.kubernetes.io/component=gpu-operator")
_USUAL: Final = "gpu-operator"
_POD_NAME: Final = re.compile("[a-z0-9]([-.a-z0-9]*[a-z0-9])?")


class Deployment(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("apps", "v1", "Deployment", "deployments")

    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    @property
    def replicas(self) -> int:
        return int(self.spec.get("replicas", 1))

    @property
    def selector(self) -> str:
        """Labels of its pods, as a query."""
        labels = self.spec.get("selector", {}).get("matchLabels", {})
        return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))

    @property
    def images(self) -> dict[str, str]:
        """Variables of its environment that name the images of operands."""
        variables = (one for container in self._containers for one in container.get("env", []))
        return {one["name"]: one["value"] for one in variables if one["name"].endswith("_IMAGE") and one.get("value")}

    def argument(self, name: str) -> tuple[str, ...]:
        """What its containers are given as `--name=`."""
        words = [word for container in self._containers for word in container.get("args", [])]
        return tuple(word.partition("=")[2] for word in words if word.startswith(f"--{name}="))

    @property
    def _containers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.spec.get("template", {}).get("spec", {}).get("containers", [])
        return found


class ReplicaSet(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("apps", "v1", "ReplicaSet", "replicasets")


class FullDaemonSet(LiveDaemonSet, frozen=True, kw_only=True):
    """A DaemonSet with everything in it, to be compared."""

    status: dict[str, Any] = {}

    @property
    def pods(self) -> int:
        """How many nodes should have a pod of it."""
        return int(self.status.get("desiredNumberScheduled", 0))


class ConfigMap(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")

    data: dict[str, str] = {}


class Ours(msgspec.Struct, frozen=True, kw_only=True):
    """How our controllers were installed."""

    operator: bool = True
    """Whether they carry out ClusterPolicies."""
    namespace: str = NAMESPACE
    """Where they would have the operands."""
    images: dict[str, str] = {}
    """Variables of their environment that name images."""


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a cluster."""

    policies: tuple[StoredClusterPolicy, ...] = ()
    drivers: tuple[StoredNVIDIADriver, ...] = ()
    deployments: tuple[Deployment, ...] = ()
    """NVIDIA's operator; more than one only if it was installed more than once."""
    rival: Rival | None = None
    ours: Rival | None = None
    """Who leads among our controllers."""
    release: Ours | None = None
    """How they were installed; None where Helm did not."""
    daemonsets: tuple[FullDaemonSet, ...] = ()
    config_maps: tuple[ConfigMap, ...] = ()
    """ConfigMaps beside the operands, which a ClusterPolicy may name."""
    nodes: tuple[Node, ...] = ()
    states: tuple[GPUNodeState, ...] = ()
    """What our agents say of their nodes."""
    driver_pods: tuple[OperandPod, ...] = ()
    namespace: str = _USUAL
    """Namespace of the operands."""

    @property
    def policy(self) -> StoredClusterPolicy | None:
        """The ClusterPolicy in force."""
        return winner(self.policies)


async def read(client: Client, namespace: str | None = None, *, now: datetime | None = None) -> Installation:
    """Everything a plan needs. A kind that the cluster does not know has no objects."""
    moment = now or utc_now()
    policies, drivers, nodes, states = await asyncio.gather(
        _all(client, StoredClusterPolicy),
        _all(client, StoredNVIDIADriver),
        client.list(Node),
        _all(client, GPUNodeState),
    )
    leases, own, release = await asyncio.gather(
        client.list(TimedLease, SELECTION),
        client.list(TimedLease, Selection(fields=f"metadata.name={OURS}")),
        _release(client),
    )
    found = Installation(
        policies=tuple(policies),
        drivers=tuple(drivers),
        nodes=tuple(nodes),
        states=tuple(states),
        deployments=tuple(await operators(client, namespace, leases)),
        rival=judge(leases, moment),
        ours=live(own, moment),
        release=release,
    )
    home = namespace or _home(found)
    daemonsets, config_maps, pods = await asyncio.gather(
        client.list(FullDaemonSet, Selection(home)), client.list(ConfigMap, Selection(home)), _driver_pods(client, home)
    )
    return msgspec.structs.replace(
        found,
        namespace=home,
        daemonsets=tuple(daemonsets),
        config_maps=tuple(config_maps),
        driver_pods=tuple(pods),
    )


async def _driver_pods(client: Client, namespace: str) -> list[OperandPod]:
    some = await asyncio.gather(
        *(client.list(OperandPod, Selection(namespace, labels=labels)) for labels in _DRIVER_PODS)
    )
    return list({pod.name: pod for pods in some for pod in pods}.values())


async def _release(client: Client) -> Ours | None:
    """How Helm has installed our controllers, read from their Deployment."""
    try:
        held = await client.get(Deployment, _CONTROLLER, NAMESPACE)
    except NotFound:
        return None
    return Ours(
        operator="operator" not in held.argument("without"),
        namespace=next(iter(held.argument("operand-namespace")), NAMESPACE),
        images=held.images,
    )


def live(leases: list[TimedLease], now: datetime) -> Rival | None:
    """Who holds one of these Leases at this moment; unlike `judge` it waits for nobody."""
    held = [
        Rival(lease.metadata.namespace or "", lease.holder, lease.ends)
        for lease in leases
        if lease.holder and lease.ends is not None and lease.ends > now
    ]
    return max(held, key=lambda one: one.until, default=None)


async def operators(
    client: Client, namespace: str | None = None, leases: list[TimedLease] | None = None
) -> list[Deployment]:
    """The Deployments of NVIDIA's operator: by who holds its Lease, else by the labels that its chart gives them, else
    by what a take-over has left on them."""
    held = leases if leases is not None else await client.list(TimedLease, SELECTION)
    for lease in held:
        wanted = namespace in (None, lease.metadata.namespace)
        if wanted and (found := await _deployment_of(client, lease)) is not None:
            return [found]
    marked = [await client.list(Deployment, Selection(namespace, labels=mark)) for mark in _MARKS]
    by_key = {one.key: one for found in marked for one in found}
    if not by_key:
        everything = await client.list(Deployment, Selection(namespace))
        by_key = {one.key: one for one in everything if BEFORE in one.metadata.annotations}
    return [by_key[key] for key in sorted(by_key)]


async def pod_of(client: Client, lease: TimedLease) -> Pod | None:
    """The pod that holds a Lease: the holder's word for itself begins with the pod's name."""
    name = lease.holder.partition("_")[0]
    if not _POD_NAME.fullmatch(name):
        return None
    try:
        return await client.get(Pod, name, lease.metadata.namespace)
    except NotFound:
        return None


async def _deployment_of(client: Client, lease: TimedLease) -> Deployment | None:
    """From the pod that holds a Lease over its ReplicaSet to the Deployment."""
    namespace = lease.metadata.namespace
    pod = await pod_of(client, lease)
    owner = controller_of(pod) if pod is not None else None
    if owner is None or owner.kind != ReplicaSet.resource.kind:
        return None
    try:
        above = controller_of(await client.get(ReplicaSet, owner.name, namespace))
        if above is None or above.kind != Deployment.resource.kind:
            return None
        return await client.get(Deployment, above.name, namespace)
    except NotFound:
        return None


def _home(found: Installation) -> str:
    """Where the operands are: as the ClusterPolicy says, else where the operator is or was."""
    if found.policy is not None and found.policy.status.namespace:
        return found.policy.status.namespace
    if found.deployments:
        return found.deployments[0].metadata.namespace or _USUAL
    return found.rival.namespace if found.rival is not None else _USUAL


async def _all[T: Object](client: Client, kind: type[T]) -> list[T]:
    try:
        return await client.list(kind)
    except NotFound:
        return []
