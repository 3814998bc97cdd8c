"""The VFIO manager: binds cards to vfio-pci, so that virtual machines can have them whole."""

from gpu_control_plane.operator.stack.common_settings import operand
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.driver_manager import driver_manager
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.sandbox import deployed
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant


def _transform(daemonset: DaemonSet, stage: Stage, _variant: Variant) -> None:
    section = stage.policy.vfio_manager
    driver_manager(daemonset, section.driver_manager, stage.platform, resources=section.resources)
    operand(daemonset, section, stage, image="VFIO_MANAGER_IMAGE")


STATE = State(
    name="state-vfio-manager",
    enabled=lambda policy: deployed(policy, policy.vfio_manager),
    transform=_transform,
    env=lambda policy: policy.vfio_manager.env,
)
