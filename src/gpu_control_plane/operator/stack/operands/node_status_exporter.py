"""The node status exporter: metrics of how far the software of a node has come."""

from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.operator.stack.common_settings import VALIDATOR_IMAGE, operand
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant


def _transform(daemonset: DaemonSet, stage: Stage, _variant: Variant) -> None:
    operand(daemonset, stage.policy.node_status_exporter, stage, image=VALIDATOR_IMAGE)


STATE = State(
    name="state-node-status-exporter",
    enabled=lambda policy: on(policy.node_status_exporter.enabled, absent=False),
    transform=_transform,
    env=lambda policy: policy.node_status_exporter.env,
)
