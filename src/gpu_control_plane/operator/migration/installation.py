"""What is installed of NVIDIA's operator and of ours: read once, for a plan or a switch of operators."""

import asyncio
from datetime import datetime
from typing import Any, Final

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import LEASE
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Client, Object, Selection
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.lease_watch import LeaseHolder, TimedLease, active_holder, observe
from gpu_control_plane.kube.objects import controller_of
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.migration.deployment import ConfigMap, Deployment, our_deployment
from gpu_control_plane.migration.other_operator import (
    OtherOperator,
    current_holder,
    operator_deployments,
    our_lease,
    trusted_leases,
)
from gpu_control_plane.operator.cluster_policy import oldest_policy
from gpu_control_plane.operator.driver_pods import DRIVER_SELECTORS, has_driver_labels
from gpu_control_plane.operator.gpu_cluster import GPUCluster
from gpu_control_plane.operator.nvidia_lease import LEASE_SELECTION
from gpu_control_plane.operator.stack.live import LiveDaemonSet
from gpu_control_plane.rules.trusted_namespaces import USUAL_NAMESPACES, TrustedNamespaces

OWNERS: Final = (StoredClusterPolicy.resource.kind, StoredNVIDIADriver.resource.kind)
"""Kinds that own operands."""
_PLUGIN_APP: Final = "nvidia-device-plugin-daemonset"
_DEFAULT_NAMESPACE: Final = "gpu-operator"


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
    trusted = release.trusted if release is not None else TrustedNamespaces(own=own_namespace)
    theirs = trusted_leases(leases, trusted, named)
    found = Installation(
        policies=tuple(policies),
        drivers=tuple(drivers),
        gpu_clusters=tuple(gpu_clusters),
        nodes=tuple(nodes),
        states=tuple(states),
        deployments=tuple(await operator_deployments(client, own_namespace, namespace, theirs, what=NVIDIA)),
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
    held = await our_deployment(client, own_namespace)
    if held is None:
        return None
    return ReleaseSettings(
        operator="operator" not in held.argument("without"),
        own_namespace=own_namespace,
        namespace=next(iter(held.argument("operand-namespace")), own_namespace),
        images=held.images,
        nvidia_namespaces=held.argument("nvidia-namespace"),
    )


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
