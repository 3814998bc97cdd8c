"""Labels, annotations and words of NVIDIA's operator that this one reads and writes, each with its meaning."""

from typing import Final

from gpu_control_plane.kube.fields import OpenEnum

GROUP: Final = "nvidia.com"
LEASE: Final = "53822513.nvidia.com"
"""The lease of NVIDIA's operator: while it is live, that one is in charge."""
DEPLOY: Final = "nvidia.com/gpu.deploy."
"""Prefix of the labels that bring operands to a node; the rest is the operand's name."""
TRUE: Final = "true"
PRE_INSTALLED: Final = "pre-installed"
"""Value of the driver's deploy label on a node whose host brings the driver."""
AGENT: Final = "agent"
"""Value of the deploy labels of what our agent does itself on a node. Ours."""

PCI_LABELS: Final = tuple(
    f"feature.node.kubernetes.io/pci-{device}.present" for device in ("10de", "0302_10de", "0300_10de")
)
FEATURE_PREFIX: Final = "feature.node.kubernetes.io/"


class NodeLabel(OpenEnum):
    """Labels of Nodes."""

    PRESENT = "nvidia.com/gpu.present", "Whether the node has a card."
    OPERANDS = f"{DEPLOY}operands", "`false` keeps all operands away from the node."
    WORKLOAD = "nvidia.com/gpu.workload.config", "What the node's cards are for."
    MIG_CAPABLE = "nvidia.com/mig.capable", "Whether its cards can be divided."
    MIG_CONFIG = "nvidia.com/mig.config", "How its cards are divided."
    MPS_CAPABLE = "nvidia.com/mps.capable", "Whether its cards are shared by MPS."
    PRODUCT = "nvidia.com/gpu.product", "Model of its cards."
    VGPU_HOST_DRIVER = "nvidia.com/vgpu.host-driver-version", "Version of the vGPU host driver, in a guest."
    DRIVER_OWNER = "nvidia.com/gpu-operator.driver.owner", "The NVIDIADriver whose driver the node gets."
    UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state", "How far the upgrade of its driver has come."
    UPGRADE_SKIP = "nvidia.com/gpu-driver-upgrade.skip", "`true` keeps upgrades away from the node."
    OS_ID = "feature.node.kubernetes.io/system-os_release.ID", "Its operating system."
    OS_VERSION = "feature.node.kubernetes.io/system-os_release.VERSION_ID", "Version of it."
    OS_MAJOR = "feature.node.kubernetes.io/system-os_release.VERSION_ID.major", "Major version of it."
    KERNEL = "feature.node.kubernetes.io/kernel-version.full", "Its kernel."
    OSTREE = "feature.node.kubernetes.io/system-os_release.OSTREE_VERSION", "Version of Red Hat CoreOS."
    RUNTIME = "gpu.deckhouse.io/container-runtime", "Its container runtime: containerd, crio or docker. Ours."
    AGENT = "gpu.deckhouse.io/deploy.agent", "`paused-for-…` makes our agent let go of the driver. Ours."


class NodeAnnotation(OpenEnum):
    """Annotations of Nodes."""

    UPGRADE_ENABLED = "nvidia.com/gpu-driver-upgrade-enabled", "Whether upgrades of its driver are done here."
    UPGRADE_REQUESTED = "nvidia.com/gpu-driver-upgrade-requested", "Set by a person to ask for an upgrade of this node."
    SAFE_LOAD = (
        "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load",
        "The driver container waits until it may load.",
    )
    INITIALLY_UNSCHEDULABLE = (
        "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable",
        "The node was cordoned before the upgrade and stays so.",
    )
    WAIT_START = (
        "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time",
        "When the wait for running work began, in seconds since 1970.",
    )
    VALIDATION_START = (
        "nvidia.com/gpu-driver-upgrade-validation-start-time",
        "When the wait for the validator began, in seconds since 1970.",
    )
    STEP_SINCE = (
        "gpu.deckhouse.io/driver-upgrade-step-since",
        "When the present step began, in seconds since 1970. Ours.",
    )
    STARTED = "gpu.deckhouse.io/driver-upgrade-started", "When the node's turn began, in seconds since 1970. Ours."
    FAILURE = "gpu.deckhouse.io/driver-upgrade-failure", "Why the upgrade of the node failed. Ours."
    FAILED_WITH = (
        "gpu.deckhouse.io/driver-upgrade-failed-with",
        "Revision of the driver with which it failed: it is tried again with another. Ours.",
    )
    LOST_SINCE = (
        "gpu.deckhouse.io/driver-upgrade-lost-since",
        "Since when a node under way has not been ready, in seconds since 1970. Ours.",
    )
    RENEWALS = (
        "gpu.deckhouse.io/driver-upgrade-renewals",
        "How often the present step got its time anew, since the operator was away. Ours.",
    )


class PodLabel(OpenEnum):
    """Labels of Pods."""

    DRAIN_SKIP = "nvidia.com/gpu-driver-upgrade-drain.skip", "`true` keeps drains away from the pod."
    COMPONENT = "app.kubernetes.io/component", "What a pod is a part of."
    PRECOMPILED = "nvidia.com/precompiled", "Whether a driver came ready for the kernel."
    DRIVER_OS = "nvidia.com/node.os-version", "Operating system a driver is for."
    STATE = "nvidia.com/gpu-operator.state", "State of the stack a driver belongs to."
    OPERAND = "gpu.deckhouse.io/operand", "State of the stack an object belongs to. Ours."
    VARIANT = "gpu.deckhouse.io/variant", "System, kernel, runtime or agent's nodes that an operand is for. Ours."


class StackCondition(OpenEnum):
    """Conditions of a ClusterPolicy and an NVIDIADriver."""

    READY = "Ready", "Everything that was asked for runs."
    ERROR = "Error", "Something is wrong; the message says what and where."
    OTHER_OPERATOR_ACTIVE = "OtherOperatorActive", "NVIDIA's operator is in charge; nothing is written here."
    UNKNOWN_FIELDS = "UnknownFields", "The spec has fields that this release does not know; they have no effect."


class StackReason(OpenEnum):
    """Reasons of those conditions."""

    RECONCILED = "Reconciled", "All states pass."
    NO_GPU_NODES = "NoGPUNodes", "No node has a card."
    NFD_LABELS_MISSING = "NFDLabelsMissing", "Nothing has labelled nodes with their features."
    OPERAND_NOT_READY = "OperandNotReady", "States are not ready; the message names them."
    RECONCILE_FAILED = "ReconcileFailed", "Something cannot be rendered or written."
    IGNORED = "Ignored", "Another ClusterPolicy is older, and in force. Ours."
    READY = "Ready", "Error: nothing is wrong."
    ERROR = "Error", "Ready: something is wrong."
    CONFLICTING_NODE_SELECTOR = "ConflictingNodeSelector", "Several NVIDIADrivers select the same node."
    DRIVER_NOT_READY = "DriverNotReady", "Driver pods are waited for."
    LABELLING = "LabellingNodes", "Nodes do not have all their labels yet. Ours."
    PRESENT = "Present", "There are such fields. Ours."
    ALL_KNOWN = "AllKnown", "Every field is known. Ours."


class UpgradeState(OpenEnum):
    """How far the upgrade of a node's driver has come."""

    NONE = "", "not looked at yet."
    DONE = "upgrade-done", "the driver is as it should be."
    REQUIRED = "upgrade-required", "it waits for its turn."
    CORDON_REQUIRED = "cordon-required", "its turn has come."
    WAIT_FOR_JOBS_REQUIRED = "wait-for-jobs-required", "running work may finish."
    POD_DELETION_REQUIRED = "pod-deletion-required", "pods that use a card leave."
    DRAIN_REQUIRED = "drain-required", "all pods leave."
    POD_RESTART_REQUIRED = "pod-restart-required", "the driver pod is replaced."
    VALIDATION_REQUIRED = "validation-required", "the new driver is checked."
    UNCORDON_REQUIRED = "uncordon-required", "the node may be used again."
    FAILED = "upgrade-failed", "a person has to look."


class StackEvent(OpenEnum):
    """Reasons of Events."""

    DRIVER_UPGRADE = "GPUDriverUpgrade", "On a Node: the upgrade of its driver has come further, or failed."
    STATE_CHANGED = "StackStateChanged", "On a ClusterPolicy or an NVIDIADriver: it is ready, or no longer."
    OPERAND_READY = "OperandReady", "A state of the stack has become ready."
    OPERAND_NOT_READY = "OperandNotReady", "A state of the stack is no longer ready; the note says where and why."
    DRIFT_REPAIRED = "DriftRepaired", "An object had been changed or removed by another; it is restored."
    IGNORED = "ClusterPolicyIgnored", "Another ClusterPolicy is in force."
    UNKNOWN_FIELDS = "UnknownFields", "The spec has fields that have no effect here."
    OTHER_OPERATOR_ACTIVE = "OtherOperatorActive", "NVIDIA's operator is in charge."
    TAKEN_OVER = "TakenOver", "This operator is in charge now."
    CONFLICTING_NODE_SELECTOR = "ConflictingNodeSelector", "Several NVIDIADrivers select the same node."
