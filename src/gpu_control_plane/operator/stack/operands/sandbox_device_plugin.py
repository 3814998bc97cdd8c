"""KubeVirt's device plugin, which hands out whole cards and vGPU devices to virtual machines."""

from gpu_control_plane.api.nvidia.choices import SandboxMode
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import apply_operand_section, sandbox_enabled
from gpu_control_plane.operator.stack.variants import Variant


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, _variant: Variant) -> None:
    apply_operand_section(
        daemonset, render_input.policy.sandbox_device_plugin, render_input, image="SANDBOX_DEVICE_PLUGIN_IMAGE"
    )


STATE = StackState(
    name="state-sandbox-device-plugin",
    enabled=lambda policy: sandbox_enabled(policy, policy.sandbox_device_plugin, mode=SandboxMode.KUBEVIRT),
    transform=_transform,
    env=lambda policy: policy.sandbox_device_plugin.env,
)
