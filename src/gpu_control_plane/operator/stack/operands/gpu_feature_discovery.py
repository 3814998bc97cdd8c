"""GPU Feature Discovery: labels that say what the cards of a node are."""

from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.operator.stack.common_settings import operand
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.mig import tell_mig
from gpu_control_plane.operator.stack.plugin_config import choose_config
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant, by_runtime_class


def _transform(daemonset: DaemonSet, stage: Stage, _variant: Variant) -> None:
    operand(daemonset, stage.policy.gfd, stage, image="GFD_IMAGE")
    choose_config(daemonset, stage.policy.gfd, stage)
    tell_mig(daemonset.main, stage.policy)
    if stage.openshift is not None:
        # OpenShift's Node Feature Discovery reads files only.
        daemonset.main.set_env("USE_NODE_FEATURE_API", "false")


STATE = State(
    name="gpu-feature-discovery",
    enabled=lambda policy: on(policy.gfd.enabled, absent=True),
    transform=_transform,
    variants=by_runtime_class,
    env=lambda policy: policy.gfd.env,
    runtime_class=True,
)
