"""Builders of nodes, labels and label specs for the tests of labelling."""

from collections.abc import Mapping

import msgspec

from gpu_control_plane.api.node import Node, NodeInfo, NodeStatus
from gpu_control_plane.api.nvidia.choices import SandboxMode, Workload
from gpu_control_plane.api.nvidia.names import DEPLOY, PCI_LABELS, TRUE, NodeAnnotation, NodeLabel
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.operator.labelling.decide import AgentReport, LabelPatch, LabelSpec, NodeInput, decide

P = {PCI_LABELS[0]: TRUE}
PRESENT = {NodeLabel.PRESENT.value: TRUE}
OWNER = NodeLabel.DRIVER_OWNER.value
MIG_CONFIG = NodeLabel.MIG_CONFIG.value
WORKLOAD = NodeLabel.WORKLOAD.value
OPERANDS = NodeLabel.OPERANDS.value
RUNTIME = NodeLabel.RUNTIME.value
ENABLED = NodeAnnotation.UPGRADE_ENABLED.value
PAUSED = "paused-for-driver-upgrade"
AGENT_PAUSED = f"agent_{PAUSED}"


def keys(*names: str, value: str = TRUE) -> dict[str, str]:
    return {f"{DEPLOY}{name}": value for name in names}


C = keys(
    *("driver", "gpu-feature-discovery", "container-toolkit", "device-plugin", "dcgm", "dcgm-exporter"),
    *("node-status-exporter", "operator-validator", "client"),
)
MIG = keys("mig-manager")
VFIO = keys("sandbox-device-plugin", "sandbox-validator", "vfio-manager", "kata-manager", "cc-manager", "client")
KATA = keys("kata-sandbox-device-plugin", "sandbox-validator", "vfio-manager", "kata-manager", "cc-manager", "client")
VGPU = keys("sandbox-device-plugin", "vgpu-manager", "vgpu-device-manager", "sandbox-validator", "cc-manager", "client")
SPEC = LabelSpec(
    sandbox=False,
    default_workload=Workload.CONTAINER,
    mode=SandboxMode.KUBEVIRT,
    mig_manager=True,
    mig_default="",
    driver_enabled=True,
    upgrades=False,
    driver_crd=False,
)
SANDBOX = msgspec.structs.replace(SPEC, sandbox=True)
KATA_MODE = msgspec.structs.replace(SANDBOX, mode=SandboxMode.KATA)
ALL_DISABLED = msgspec.structs.replace(SPEC, mig_default="all-disabled")
UPGRADES = msgspec.structs.replace(SPEC, upgrades=True)
DRIVER_CRD = msgspec.structs.replace(SPEC, driver_crd=True)
CAPABLE = {NodeLabel.MIG_CAPABLE.value: TRUE}
A100 = {NodeLabel.PRODUCT.value: "NVIDIA-A100-SXM4-40GB"}
PASSTHROUGH = {WORKLOAD: "vm-passthrough"}
VM_VGPU = {WORKLOAD: "vm-vgpu"}
OFF = {OPERANDS: "false"}


def node(
    labels: Mapping[str, str], annotations: Mapping[str, str] | None = None, runtime: str = "containerd://2.4.2"
) -> Node:
    return Node(
        metadata=ObjectMeta(name="worker-1", labels=dict(labels), annotations=dict(annotations or {})),
        status=NodeStatus(node_info=NodeInfo(container_runtime_version=runtime)),
    )


def after(before: Node, change: LabelPatch) -> Node:
    """The node once the change is written."""
    meta = before.metadata
    sides = (({**meta.labels}, change.labels), ({**meta.annotations}, change.annotations))
    for held, changes in sides:
        for key, value in changes.items():
            held.pop(key, None)
            if value is not None:
                held[key] = value
    return msgspec.structs.replace(
        before, metadata=msgspec.structs.replace(meta, labels=sides[0][0], annotations=sides[1][0])
    )


def labelled(labels: Mapping[str, str], spec: LabelSpec, report: AgentReport | None = None) -> dict[str, str]:
    """All labels of a node once it is as it should be, our own label left out: one test is about that."""
    subject = NodeInput(node(labels), report or AgentReport())
    found = after(subject.node, decide(subject, spec)).metadata.labels
    return {name: value for name, value in found.items() if name != RUNTIME}
