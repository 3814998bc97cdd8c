"""GPU Feature Discovery, which labels nodes with what their cards are."""

from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.plugin_config import configure_plugin_config
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import apply_operand_section, configure_mig
from gpu_control_plane.operator.stack.variants import Variant, by_runtime_class


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, _variant: Variant) -> None:
    apply_operand_section(daemonset, render_input.policy.gfd, render_input, image="GFD_IMAGE")
    configure_plugin_config(daemonset, render_input.policy.gfd, render_input)
    configure_mig(daemonset.main, render_input.policy)
    if render_input.openshift is not None:
        # OpenShift's Node Feature Discovery reads feature files only.
        daemonset.main.set_env("USE_NODE_FEATURE_API", "false")


STATE = StackState(
    name="gpu-feature-discovery",
    enabled=lambda policy: on(policy.gfd.enabled, absent=True),
    transform=_transform,
    variants=by_runtime_class,
    env=lambda policy: policy.gfd.env,
    runtime_class=True,
)
