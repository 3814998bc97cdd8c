"""The CC manager, which switches confidential computing of cards on and off."""

from gpu_control_plane.api.nvidia.choices import SandboxMode
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import apply_operand_section, sandbox_enabled
from gpu_control_plane.operator.stack.variants import Variant


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, _variant: Variant) -> None:
    section = render_input.policy.cc_manager
    apply_operand_section(daemonset, section, render_input, image="CC_MANAGER_IMAGE")
    if section.default_mode is not None:
        daemonset.main.set_env("DEFAULT_CC_MODE", section.default_mode.value)


STATE = StackState(
    name="state-cc-manager",
    enabled=lambda policy: sandbox_enabled(policy, policy.cc_manager, mode=SandboxMode.KATA),
    transform=_transform,
    env=lambda policy: policy.cc_manager.env,
)
