"""DCGM: the host engine that measures cards, for the exporter and other clients."""

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import apply_operand_section
from gpu_control_plane.operator.stack.variants import Variant, by_runtime_class


def enabled(policy: ClusterPolicySpec) -> bool:
    return on(policy.dcgm.enabled, absent=True)


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, _variant: Variant) -> None:
    apply_operand_section(daemonset, render_input.policy.dcgm, render_input, image="DCGM_IMAGE")


STATE = StackState(
    name="state-dcgm",
    enabled=enabled,
    transform=_transform,
    variants=by_runtime_class,
    env=lambda policy: policy.dcgm.env,
    runtime_class=True,
)
