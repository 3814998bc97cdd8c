"""The node status exporter: metrics of which parts of the stack are ready on a node."""

from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.operator.stack.common_settings import VALIDATOR_IMAGE
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import apply_operand_section
from gpu_control_plane.operator.stack.variants import Variant


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, _variant: Variant) -> None:
    apply_operand_section(daemonset, render_input.policy.node_status_exporter, render_input, image=VALIDATOR_IMAGE)


STATE = StackState(
    name="state-node-status-exporter",
    enabled=lambda policy: on(policy.node_status_exporter.enabled, absent=False),
    transform=_transform,
    env=lambda policy: policy.node_status_exporter.env,
)
