"""DCGM: the host engine that measures cards for whoever asks it."""

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.operator.stack.common_settings import operand
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant, by_runtime_class


def enabled(policy: ClusterPolicySpec) -> bool:
    return on(policy.dcgm.enabled, absent=True)


def _transform(daemonset: DaemonSet, stage: Stage, _variant: Variant) -> None:
    operand(daemonset, stage.policy.dcgm, stage, image="DCGM_IMAGE")


STATE = State(
    name="state-dcgm",
    enabled=enabled,
    transform=_transform,
    variants=by_runtime_class,
    env=lambda policy: policy.dcgm.env,
    runtime_class=True,
)
