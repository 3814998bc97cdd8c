"""The VFIO manager, which binds cards to vfio-pci, so that virtual machines can have whole cards."""

from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import apply_operand_section, configure_driver_manager, sandbox_enabled
from gpu_control_plane.operator.stack.variants import Variant


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, _variant: Variant) -> None:
    section = render_input.policy.vfio_manager
    configure_driver_manager(daemonset, section.driver_manager, render_input.platform, resources=section.resources)
    apply_operand_section(daemonset, section, render_input, image="VFIO_MANAGER_IMAGE")


STATE = StackState(
    name="state-vfio-manager",
    enabled=lambda policy: sandbox_enabled(policy, policy.vfio_manager),
    transform=_transform,
    env=lambda policy: policy.vfio_manager.env,
)
