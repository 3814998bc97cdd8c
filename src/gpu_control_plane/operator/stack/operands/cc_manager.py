"""The CC manager: switches confidential computing of cards on and off."""

from gpu_control_plane.api.nvidia.choices import SandboxMode
from gpu_control_plane.operator.stack.common_settings import operand
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.sandbox import deployed
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant


def _transform(daemonset: DaemonSet, stage: Stage, _variant: Variant) -> None:
    section = stage.policy.cc_manager
    operand(daemonset, section, stage, image="CC_MANAGER_IMAGE")
    if section.default_mode is not None:
        daemonset.main.set_env("DEFAULT_CC_MODE", section.default_mode.value)


STATE = State(
    name="state-cc-manager",
    enabled=lambda policy: deployed(policy, policy.cc_manager, mode=SandboxMode.KATA),
    transform=_transform,
    env=lambda policy: policy.cc_manager.env,
)
