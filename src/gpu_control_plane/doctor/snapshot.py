"""What checks look at: the objects of a cluster at one moment, and what could not be read of them."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE, __version__
from gpu_control_plane.api.admissionpolicy import ValidatingAdmissionPolicy
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.api.pod import Pod, WaitingPod
from gpu_control_plane.api.ray.view import RayClusterView, RayJobView, RayServiceView
from gpu_control_plane.doctor.kinds import (
    CheckedNode,
    EndpointSlice,
    PolicyBinding,
    ReportMeta,
    RuntimeClass,
    VersionedCRD,
)
from gpu_control_plane.kube.ca_bundle import WebhookConfiguration
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.fields import OpenEnum
from gpu_control_plane.kube.lease_watch import TimedLease
from gpu_control_plane.kube.replicas import Deployment
from gpu_control_plane.operator.views import DaemonSet
from gpu_control_plane.pools.access import IndexConfigMap


class Source(OpenEnum):
    """What is read, one list each. The value is the name of the field of `Snapshot`."""

    CRDS = "crds", "CustomResourceDefinitions"
    DEPLOYMENTS = "deployments", "Deployments of our namespace"
    DAEMONSETS = "daemonsets", "DaemonSets of our namespace"
    PODS = "pods", "Pods of our namespace"
    LEASES = "leases", "Leases of our namespace"
    NVIDIA_LEASES = "nvidia_leases", "Leases of NVIDIA's operator"
    WEBHOOKS = "webhooks", "webhook configurations"
    ENDPOINTS = "endpoints", "EndpointSlices of our namespace"
    POLICIES = "policies", "ValidatingAdmissionPolicies"
    BINDINGS = "bindings", "ValidatingAdmissionPolicyBindings"
    INDEX = "index", "ConfigMap with the index of access"
    REPORTS = "reports", "reports of the agents (NodeFeatures)"
    CARDS = "cards", "GPUDevices"
    STATES = "states", "GPUNodeStates"
    POOLS = "pools", "GPUPools"
    NODES = "nodes", "Nodes"
    WAITING = "waiting", "Pods without a node"
    FAILED = "failed", "Pods that have failed"
    REFUSALS = "refusals", "Events about pods that could not be created"
    CLUSTER_POLICIES = "cluster_policies", "ClusterPolicies"
    DRIVERS = "drivers", "NVIDIADrivers"
    RUNTIME_CLASSES = "runtime_classes", "RuntimeClasses"
    KUBERAY_LEASES = "kuberay_leases", "Leases of KubeRay's operator"
    RAY_CRDS = "ray_crds", "CustomResourceDefinitions of Ray"
    RAY_CLUSTERS = "ray_clusters", "RayClusters"
    RAY_JOBS = "ray_jobs", "RayJobs"
    RAY_SERVICES = "ray_services", "RayServices"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment. A field that is named in `unread` is empty and says nothing."""

    now: datetime
    namespace: str = DEFAULT_NAMESPACE
    """Where our programs run."""
    release: str = __version__
    """The release of the program that looks."""
    crds: Sequence[CustomResourceDefinition] = ()
    deployments: Sequence[Deployment] = ()
    daemonsets: Sequence[DaemonSet] = ()
    pods: Sequence[Pod] = ()
    leases: Sequence[TimedLease] = ()
    nvidia_leases: Sequence[TimedLease] = ()
    webhooks: Sequence[WebhookConfiguration] = ()
    endpoints: Sequence[EndpointSlice] = ()
    policies: Sequence[ValidatingAdmissionPolicy] = ()
    bindings: Sequence[PolicyBinding] = ()
    index: Sequence[IndexConfigMap] = ()
    reports: Sequence[ReportMeta] = ()
    cards: Sequence[GPUDevice] = ()
    states: Sequence[GPUNodeState] = ()
    pools: Sequence[GPUPool] = ()
    nodes: Sequence[CheckedNode] = ()
    waiting: Sequence[WaitingPod] = ()
    failed: Sequence[Pod] = ()
    refusals: Sequence[Event] = ()
    cluster_policies: Sequence[StoredClusterPolicy] = ()
    drivers: Sequence[StoredNVIDIADriver] = ()
    runtime_classes: Sequence[RuntimeClass] = ()
    kuberay_leases: Sequence[TimedLease] = ()
    ray_crds: Sequence[VersionedCRD] = ()
    ray_clusters: Sequence[RayClusterView] = ()
    ray_jobs: Sequence[RayJobView] = ()
    ray_services: Sequence[RayServiceView] = ()
    unread: Mapping[Source, str] = {}
    """What could not be read, and why."""
    before: "Snapshot | None" = None
    """An earlier look at the same cluster, where there was one."""
