"""KubeVirt's device plugin: offers whole cards and vGPU devices to virtual machines."""

from gpu_control_plane.api.nvidia.choices import SandboxMode
from gpu_control_plane.operator.stack.common_settings import operand
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.sandbox import deployed
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant


def _transform(daemonset: DaemonSet, stage: Stage, _variant: Variant) -> None:
    operand(daemonset, stage.policy.sandbox_device_plugin, stage, image="SANDBOX_DEVICE_PLUGIN_IMAGE")


STATE = State(
    name="state-sandbox-device-plugin",
    enabled=lambda policy: deployed(policy, policy.sandbox_device_plugin, mode=SandboxMode.KUBEVIRT),
    transform=_transform,
    env=lambda policy: policy.sandbox_device_plugin.env,
)
