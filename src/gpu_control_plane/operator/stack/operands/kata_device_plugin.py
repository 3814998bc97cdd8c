"""The device plugin for Kata Containers: offers whole cards to pods that are virtual machines."""

from gpu_control_plane.api.nvidia.choices import SandboxMode
from gpu_control_plane.operator.stack.common_settings import operand
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.sandbox import deployed
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant


def _transform(daemonset: DaemonSet, stage: Stage, _variant: Variant) -> None:
    operand(daemonset, stage.policy.kata_sandbox_device_plugin, stage, image="KATA_SANDBOX_DEVICE_PLUGIN_IMAGE")


STATE = State(
    name="state-kata-device-plugin",
    enabled=lambda policy: deployed(policy, policy.kata_sandbox_device_plugin, mode=SandboxMode.KATA),
    transform=_transform,
    env=lambda policy: policy.kata_sandbox_device_plugin.env,
)
