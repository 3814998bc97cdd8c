"""The vGPU device manager: makes the vGPU devices of a node by the layout that its label names."""

from typing import Final

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec, VGPUDevicesConfig
from gpu_control_plane.operator.stack.common_settings import operand
from gpu_control_plane.operator.stack.config_maps import follow_config, named
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.sandbox import deployed
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant

_LAYOUTS: Final = "default-vgpu-devices-config"
_LAYOUT: Final = "default"


def _config(policy: ClusterPolicySpec) -> VGPUDevicesConfig:
    return policy.vgpu_device_manager.config or VGPUDevicesConfig()


def _own_layouts(policy: ClusterPolicySpec) -> bool:
    return _config(policy).name in {"", _LAYOUTS}


def _transform(daemonset: DaemonSet, stage: Stage, _variant: Variant) -> None:
    config = _config(stage.policy)
    operand(daemonset, stage.policy.vgpu_device_manager, stage, image="VGPU_DEVICE_MANAGER_IMAGE")
    daemonset.main.set_env("DEFAULT_VGPU_CONFIG", config.default or _LAYOUT)
    if not _own_layouts(stage.policy):
        named(stage.platform, config.name, field="vgpuDeviceManager.config")
        daemonset.add_volume("vgpu-config", configMap={"name": config.name})
        follow_config(daemonset, stage, config.name)


def _objects(manifests: list[Manifest], stage: Stage) -> list[Manifest]:
    """Our layouts are there only while they are used."""
    own = _own_layouts(stage.policy)
    return [manifest for manifest in manifests if own or manifest["kind"] != "ConfigMap"]


STATE = State(
    name="state-vgpu-device-manager",
    enabled=lambda policy: deployed(policy, policy.vgpu_device_manager),
    transform=_transform,
    objects=_objects,
    env=lambda policy: policy.vgpu_device_manager.env,
)
