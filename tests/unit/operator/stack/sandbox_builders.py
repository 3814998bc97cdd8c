"""A cluster for virtual machines, what is rendered for it, and a table of the operands."""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.operator.node_facts import NodeKind, OperatingSystem
from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.operands import (
    cc_manager,
    kata_device_plugin,
    kata_manager,
    sandbox_device_plugin,
    sandbox_validation,
    vfio_manager,
    vgpu_device_manager,
    vgpu_manager,
)
from gpu_control_plane.operator.stack.render import render_state
from gpu_control_plane.operator.stack.render_input import Platform, RenderInput
from gpu_control_plane.operator.stack.states import StackState
from unit.api.nvidia.stock import stock_policy

NAMESPACE = "gpu-operator"
UBUNTU = NodeKind(system=OperatingSystem("ubuntu", "24.04"))
RHEL = NodeKind(system=OperatingSystem("rhel", "9.4"))
VGPU_IMAGE = {"enabled": True, "repository": "registry.example/vgpu", "image": "vgpu-manager", "version": "580.1"}
STATES: tuple[StackState, ...] = (
    vgpu_manager.STATE,
    vgpu_device_manager.STATE,
    sandbox_validation.STATE,
    vfio_manager.STATE,
    sandbox_device_plugin.STATE,
    kata_device_plugin.STATE,
    kata_manager.STATE,
    cc_manager.STATE,
)


def policy(mode: str = "kubevirt", /, **sections: Mapping[str, Any]) -> ClusterPolicySpec:
    """The stock policy with virtual machines switched on, and sections changed key by key."""
    spec = stock_policy()["spec"]
    changes: dict[str, Mapping[str, Any]] = {"sandboxWorkloads": {"enabled": True, "mode": mode}, **sections}
    for section, values in changes.items():
        spec[section] = {**spec.get(section, {}), **values}
    return msgspec.convert(spec, ClusterPolicySpec)


def render_input(
    spec: ClusterPolicySpec | None = None,
    *kinds: NodeKind,
    openshift: OpenShift | None = None,
    **platform: Any,
) -> RenderInput:
    """One node of each kind; an Ubuntu node if none is named."""
    return RenderInput(
        policy=spec or policy(),
        platform=Platform(namespace=NAMESPACE, openshift=openshift, **platform),
        kinds=dict.fromkeys(kinds or (UBUNTU,), 1),
    )


def objects(state: StackState, scene: RenderInput) -> list[Manifest]:
    rendered = render_state(state, scene)
    assert not rendered.problem
    return copy.deepcopy(list(rendered.manifests))


def daemonsets(state: StackState, scene: RenderInput) -> list[DaemonSetManifest]:
    return [DaemonSetManifest(manifest) for manifest in objects(state, scene) if manifest["kind"] == "DaemonSet"]


def daemonset(state: StackState, scene: RenderInput) -> DaemonSetManifest:
    (found,) = daemonsets(state, scene)
    return found


def mounts(made: DaemonSetManifest, container: str) -> dict[str, str]:
    """What a container mounts: the folder or ConfigMap behind each path."""
    found = {}
    for mount in made.container(container).manifest.get("volumeMounts", ()):
        volume = made.volume(mount["name"])
        found[mount["mountPath"]] = volume["hostPath"]["path"] if "hostPath" in volume else volume["configMap"]["name"]
    return found


CLOUD_NATIVE = "nvcr.io/nvidia/cloud-native"


class Row(NamedTuple):
    """An operand and what is known of it with stock values."""

    state: StackState
    section: str
    name: str
    gate: str
    image: str
    variable: str
    mode: str = "kubevirt"

    def render_input(self, **section: Any) -> RenderInput:
        held = VGPU_IMAGE if self.section == "vgpuManager" else {}
        return render_input(policy(self.mode, **{self.section: {**held, **section}}))

    def made(self, **section: Any) -> DaemonSetManifest:
        return daemonset(self.state, self.render_input(**section))


ROWS = [
    Row(
        vgpu_manager.STATE,
        "vgpuManager",
        "nvidia-vgpu-manager-daemonset",
        "vgpu-manager",
        "registry.example/vgpu/vgpu-manager:580.1-ubuntu24.04",
        "VGPU_MANAGER_IMAGE",
    ),
    Row(
        vgpu_device_manager.STATE,
        "vgpuDeviceManager",
        "nvidia-vgpu-device-manager",
        "vgpu-device-manager",
        f"{CLOUD_NATIVE}/vgpu-device-manager:v0.5.0",
        "VGPU_DEVICE_MANAGER_IMAGE",
    ),
    Row(
        sandbox_validation.STATE,
        "validator",
        "nvidia-sandbox-validator",
        "sandbox-validator",
        "nvcr.io/nvidia/gpu-operator:v26.7.0",
        "VALIDATOR_IMAGE",
    ),
    Row(
        vfio_manager.STATE,
        "vfioManager",
        "nvidia-vfio-manager",
        "vfio-manager",
        f"{CLOUD_NATIVE}/k8s-driver-manager:v0.12.0",
        "VFIO_MANAGER_IMAGE",
    ),
    Row(
        sandbox_device_plugin.STATE,
        "sandboxDevicePlugin",
        "nvidia-sandbox-device-plugin-daemonset",
        "sandbox-device-plugin",
        "nvcr.io/nvidia/kubevirt-gpu-device-plugin:v1.6.0",
        "SANDBOX_DEVICE_PLUGIN_IMAGE",
    ),
    Row(
        kata_device_plugin.STATE,
        "kataSandboxDevicePlugin",
        "nvidia-kata-sandbox-device-plugin-daemonset",
        "kata-sandbox-device-plugin",
        f"{CLOUD_NATIVE}/nvidia-sandbox-device-plugin:v0.0.5",
        "KATA_SANDBOX_DEVICE_PLUGIN_IMAGE",
        "kata",
    ),
    Row(
        cc_manager.STATE,
        "ccManager",
        "nvidia-cc-manager",
        "cc-manager",
        f"{CLOUD_NATIVE}/k8s-cc-manager:v0.4.3",
        "CC_MANAGER_IMAGE",
        "kata",
    ),
]
