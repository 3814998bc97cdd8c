"""What is installed of NVIDIA's operator and of ours: read once, for a plan or a switch of operators."""

import asyncio
import itertools
import re
from collections.abc import Collection
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import LEASE
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Client, Object, Resource, Selection
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.lease_watch import LeaseHolder, TimedLease, active_holder, lease_selection, observe
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.operator.cluster_policy import oldest_policy
from gpu_control_plane.operator.driver_pods import DRIVER_SELECTORS, has_driver_labels
from gpu_control_plane.operator.gpu_cluster import GPUCluster
from gpu_control_plane.operator.nvidia_lease import LEASE_SELECTION
from gpu_control_plane.operator.stack.live import LiveDaemonSet
from gpu_control_plane.operator.views import controller_of
from gpu_control_plane.rules.trusted_namespaces import USUAL_NAMESPACES, TrustedNamespaces

OUR_LEASE: Final = "gpu-control-plane"
"""Name of the Lease that our controllers hold."""
REPLICAS_BEFORE: Final = "gpu.deckhouse.io/replicas-before-take-over"
"""Annotation of the Deployment of another operator: how many replicas it had."""
TAKEN_FROM: Final = "gpu.deckhouse.io/taken-from"
"""Beside it: the Lease of that operator; NVIDIA's where it is not there."""
_CONTROLLER: Final = "gpu-control-plane-controller"
OWNERS: Final = (StoredClusterPolicy.resource.kind, StoredNVIDIADriver.resource.kind)
"""Kinds that own operands."""
_PLUGIN_APP: Final = "nvidia-device-plugin-daemonset"
_DEFAULT_NAMESPACE: Final = "gpu-operator"
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
        """The label selector of its pods."""
        labels = self.spec.get("selector", {}).get("matchLabels", {})
        return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))

    @property
    def images(self) -> dict[str, str]:
        """Variables of its environment that name images of operands."""
        return {name: value for name, value in self.variables.items() if name.endswith("_IMAGE")}

    @property
    def variables(self) -> dict[str, str]:
        """Variables of its environment that have a plain value."""
        held = (one for container in self._containers for one in container.get("env", []))
        return {one["name"]: one["value"] for one in held if one.get("value")}

    def argument(self, name: str) -> tuple[str, ...]:
        """The values of `--name=value`, or of `--name value`, in the arguments of its containers."""
        given, found = self._arguments, []
        for arg, following in itertools.zip_longest(given, given[1:], fillvalue="-"):
            flag, equals, value = arg.partition("=")
            if flag == f"--{name}" and (equals or not following.startswith("-")):
                found.append(value if equals else following)
        return tuple(found)

    def flag(self, name: str) -> bool:
        """Whether `--name`, or `--name=true`, is among the arguments of its containers."""
        return f"--{name}" in self._arguments or f"--{name}=true" in self._arguments

    @property
    def config_maps(self) -> tuple[str, ...]:
        """Names of ConfigMaps that its pods mount."""
        volumes = self.spec.get("template", {}).get("spec", {}).get("volumes", [])
        named = (volume.get("configMap", {}).get("name") for volume in volumes)
        return tuple(name for name in named if name)

    @property
    def _arguments(self) -> list[str]:
        return [arg for container in self._containers for arg in container.get("args") or []]

    @property
    def _containers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.spec.get("template", {}).get("spec", {}).get("containers", [])
        return found


class ReplicaSet(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("apps", "v1", "ReplicaSet", "replicasets")


class FullDaemonSet(LiveDaemonSet, frozen=True, kw_only=True):
    """A DaemonSet with all of its fields."""

    status: dict[str, Any] = {}

    @property
    def pods(self) -> int:
        """How many nodes should have a pod of it."""
        return int(self.status.get("desiredNumberScheduled", 0))

    @property
    def serves_cards(self) -> bool:
        """Whether nodes have a driver or a device plugin of NVIDIA's from it, of which a node can have but one."""
        labels = (self.spec or {}).get("template", {}).get("metadata", {}).get("labels", {})
        return self.pods > 0 and (has_driver_labels(labels) or labels.get("app") == _PLUGIN_APP)


class ConfigMap(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")

    data: dict[str, str] = {}


class OtherOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator that ours takes the place of, as a cluster shows it."""

    words: str
    """How people call it."""
    lease: str
    labels: tuple[str, ...]
    """Selectors of its Deployment, by the labels of its chart."""
    usual: frozenset[str]
    """Namespaces in which it is believed without being named."""

    def trusted(self, own: str, more: Collection[str] = ()) -> TrustedNamespaces:
        return TrustedNamespaces(frozenset(more), own=own, usual=self.usual)


NVIDIA: Final = OtherOperator(
    words="NVIDIA's operator",
    lease=LEASE,
    labels=("app=gpu-operator", "app.kubernetes.io/component=gpu-operator"),
    usual=USUAL_NAMESPACES,
)


class ReleaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with which Helm has installed our controllers."""

    operator: bool = True
    """Whether they carry out ClusterPolicies."""
    own_namespace: str = DEFAULT_NAMESPACE
    """Where they run."""
    namespace: str = DEFAULT_NAMESPACE
    """The namespace of operands."""
    images: dict[str, str] = {}
    """Variables of their environment that name images."""
    nvidia_namespaces: tuple[str, ...] = ()
    """Namespaces in which they trust NVIDIA's operator, beside the usual ones."""

    @property
    def trusted(self) -> TrustedNamespaces:
        return TrustedNamespaces(frozenset({*self.nvidia_namespaces, self.namespace}), own=self.own_namespace)


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster contains at one moment."""

    policies: tuple[StoredClusterPolicy, ...] = ()
    drivers: tuple[StoredNVIDIADriver, ...] = ()
    gpu_clusters: tuple[GPUCluster, ...] = ()
    deployments: tuple[Deployment, ...] = ()
    """NVIDIA's operator; more than one only if it was installed more than once."""
    nvidia_holder: LeaseHolder | None = None
    """The active replica of NVIDIA's operator."""
    our_holder: LeaseHolder | None = None
    """The leader of our controllers."""
    own_namespace: str = DEFAULT_NAMESPACE
    """Where our controllers run, or would."""
    release: ReleaseSettings | None = None
    """How our controllers were installed; None if not by Helm."""
    daemonsets: tuple[FullDaemonSet, ...] = ()
    config_maps: tuple[ConfigMap, ...] = ()
    """ConfigMaps beside the operands, which a ClusterPolicy may name."""
    nodes: tuple[Node, ...] = ()
    states: tuple[GPUNodeState, ...] = ()
    """What our agents report of their nodes."""
    driver_pods: tuple[Pod, ...] = ()
    namespace: str = _DEFAULT_NAMESPACE
    """Namespace of the operands."""
    elsewhere: tuple[FullDaemonSet, ...] = ()
    """DaemonSets of drivers and device plugins in other namespaces that have nodes."""

    @property
    def has_nvidia_objects(self) -> bool:
        """Whether NVIDIA's operator, or operands, were found where they were looked for."""
        active = self.nvidia_holder is not None and self.nvidia_holder.namespace == self.namespace
        return bool(active or self.deployments or self.operands or self.driver_pods)

    @property
    def operands(self) -> tuple[FullDaemonSet, ...]:
        """The DaemonSets that belong to a ClusterPolicy or an NVIDIADriver."""
        owned = ((one, controller_of(one)) for one in self.daemonsets)
        return tuple(one for one, owner in owned if owner is not None and owner.kind in OWNERS)

    @property
    def policy(self) -> StoredClusterPolicy | None:
        """The active ClusterPolicy."""
        return oldest_policy(self.policies)


def our_lease(namespace: str) -> Selection:
    """The Lease of our controllers that run in `namespace`."""
    return Selection(namespace, fields=f"metadata.name={OUR_LEASE}")


async def read_installation(
    client: Client, own_namespace: str, namespace: str | None = None, *, now: datetime | None = None
) -> Installation:
    """Everything a plan needs. Our controllers run in `own_namespace`; NVIDIA's operator is looked for in `namespace`,
    or everywhere. A kind that the cluster does not know has no objects."""
    moment = now or utc_now()
    policies, drivers, gpu_clusters, nodes, states = await asyncio.gather(
        _all(client, StoredClusterPolicy),
        _all(client, StoredNVIDIADriver),
        _all(client, GPUCluster),
        client.list(Node),
        _all(client, GPUNodeState),
    )
    leases, own, release = await asyncio.gather(
        client.list(TimedLease, LEASE_SELECTION),
        client.list(TimedLease, our_lease(own_namespace)),
        _release(client, own_namespace),
    )
    named = {namespace or "", *(policy.status.namespace for policy in policies)}
    theirs = believed(leases, release.trusted if release is not None else TrustedNamespaces(own=own_namespace), named)
    found = Installation(
        policies=tuple(policies),
        drivers=tuple(drivers),
        gpu_clusters=tuple(gpu_clusters),
        nodes=tuple(nodes),
        states=tuple(states),
        deployments=tuple(await operator_deployments(client, own_namespace, namespace, theirs)),
        nvidia_holder=active_holder((observe(lease, moment) for lease in theirs), moment),
        our_holder=current_holder(own, moment),
        own_namespace=own_namespace,
        release=release,
    )
    operands = namespace or _operand_namespace(found)
    daemonsets, config_maps, pods = await asyncio.gather(
        client.list(FullDaemonSet),
        client.list(ConfigMap, Selection(operands)),
        _driver_pods(client, operands),
    )
    return msgspec.structs.replace(
        found,
        namespace=operands,
        daemonsets=tuple(one for one in daemonsets if one.metadata.namespace == operands),
        elsewhere=tuple(one for one in daemonsets if one.metadata.namespace != operands and one.serves_cards),
        config_maps=tuple(config_maps),
        driver_pods=tuple(pods),
    )


async def _driver_pods(client: Client, namespace: str) -> list[Pod]:
    some = await asyncio.gather(*(client.list(Pod, Selection(namespace, labels=labels)) for labels in DRIVER_SELECTORS))
    return list({pod.name: pod for pods in some for pod in pods}.values())


async def _release(client: Client, own_namespace: str) -> ReleaseSettings | None:
    """The settings of our release, read from the Deployment of our controllers."""
    try:
        held = await client.get(Deployment, _CONTROLLER, own_namespace)
    except NotFound:
        return None
    return ReleaseSettings(
        operator="operator" not in held.argument("without"),
        own_namespace=own_namespace,
        namespace=next(iter(held.argument("operand-namespace")), own_namespace),
        images=held.images,
        nvidia_namespaces=held.argument("nvidia-namespace"),
    )


def believed(leases: list[TimedLease], trusted: TrustedNamespaces, named: Collection[str] = ()) -> list[TimedLease]:
    """The Leases of NVIDIA's operator: those of trusted namespaces and of those that were named. If there is none, any:
    it may run where our operator was not told to look, and a person reads who holds it before anything is changed."""
    known = [one for one in leases if trusted.include(one.metadata.namespace) or one.metadata.namespace in named]
    return known or leases


def current_holder(leases: list[TimedLease], now: datetime) -> LeaseHolder | None:
    """The holder of one of these Leases at this moment; unlike `active_holder` without a grace period."""
    seen = [observe(lease, now) for lease in leases if lease.holder]
    held = [
        LeaseHolder(one.lease.metadata.namespace or "", one.lease.holder, one.ends)
        for one in seen
        if one.ends is not None and one.ends > now
    ]
    return max(held, key=lambda one: one.until, default=None)


async def operator_deployments(
    client: Client,
    own_namespace: str,
    namespace: str | None = None,
    leases: list[TimedLease] | None = None,
    *,
    what: OtherOperator = NVIDIA,
) -> list[Deployment]:
    """The Deployments of another operator: found by the holder of its Lease, else by the labels of its chart, else by
    the annotation that a take-over has written. Anybody may label a Deployment of their own so: where there is one in a
    trusted namespace, no other counts."""
    trusted = what.trusted(own_namespace, {namespace or ""})
    held = (
        leases if leases is not None else believed(await client.list(TimedLease, lease_selection(what.lease)), trusted)
    )
    wanted = (lease for lease in held if namespace in (None, lease.metadata.namespace))
    found = [one for lease in wanted if (one := await _deployment_of(client, lease)) is not None]
    for label in what.labels if not found else ():
        found += await client.list(Deployment, Selection(namespace, labels=label))
    if not found:
        everything = await client.list(Deployment, Selection(namespace))
        found = [one for one in everything if one.metadata.annotations.get(TAKEN_FROM, NVIDIA.lease) == what.lease]
        found = [one for one in found if REPLICAS_BEFORE in one.metadata.annotations]
    by_key = {one.key: one for one in found}
    keys = [key for key in by_key if trusted.include(key.namespace)] or by_key
    return [by_key[key] for key in sorted(keys)]


async def holder_pod(client: Client, lease: TimedLease) -> Pod | None:
    """The pod that holds a Lease: the holder's identity begins with the pod's name."""
    name = lease.holder.partition("_")[0]
    if not _POD_NAME.fullmatch(name):
        return None
    try:
        return await client.get(Pod, name, lease.metadata.namespace)
    except NotFound:
        return None


async def _deployment_of(client: Client, lease: TimedLease) -> Deployment | None:
    """The Deployment of the pod that holds a Lease."""
    namespace = lease.metadata.namespace
    pod = await holder_pod(client, lease)
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


def _operand_namespace(found: Installation) -> str:
    """The namespace in the ClusterPolicy's status, else that of NVIDIA's operator."""
    if found.policy is not None and found.policy.status.namespace:
        return found.policy.status.namespace
    if found.deployments:
        return found.deployments[0].metadata.namespace or _DEFAULT_NAMESPACE
    return found.nvidia_holder.namespace if found.nvidia_holder is not None else _DEFAULT_NAMESPACE


async def _all[T: Object](client: Client, kind: type[T]) -> list[T]:
    try:
        return await client.list(kind)
    except NotFound:
        return []
