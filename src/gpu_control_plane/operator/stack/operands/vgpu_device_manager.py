"""The vGPU device manager, which creates the vGPU devices of a node by the layout that its label names."""

from typing import Final

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec, VGPUDevicesConfig
from gpu_control_plane.operator.stack.config_maps import add_config_digest, config_map_data
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import apply_operand_section, sandbox_enabled
from gpu_control_plane.operator.stack.variants import Variant

_LAYOUTS: Final = "default-vgpu-devices-config"
_LAYOUT: Final = "default"


def _config(policy: ClusterPolicySpec) -> VGPUDevicesConfig:
    return policy.vgpu_device_manager.config or VGPUDevicesConfig()


def _own_layouts(policy: ClusterPolicySpec) -> bool:
    return _config(policy).name in {"", _LAYOUTS}


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, _variant: Variant) -> None:
    config = _config(render_input.policy)
    apply_operand_section(
        daemonset, render_input.policy.vgpu_device_manager, render_input, image="VGPU_DEVICE_MANAGER_IMAGE"
    )
    daemonset.main.set_env("DEFAULT_VGPU_CONFIG", config.default or _LAYOUT)
    if not _own_layouts(render_input.policy):
        config_map_data(render_input.platform, config.name, field="vgpuDeviceManager.config")
        daemonset.add_volume("vgpu-config", configMap={"name": config.name})
        add_config_digest(daemonset, render_input, config.name)


def _objects(manifests: list[Manifest], render_input: RenderInput) -> list[Manifest]:
    """Our own layouts are deployed only while the policy names no others."""
    own = _own_layouts(render_input.policy)
    return [manifest for manifest in manifests if own or manifest["kind"] != "ConfigMap"]


STATE = StackState(
    name="state-vgpu-device-manager",
    enabled=lambda policy: sandbox_enabled(policy, policy.vgpu_device_manager),
    transform=_transform,
    objects=_objects,
    env=lambda policy: policy.vgpu_device_manager.env,
)
