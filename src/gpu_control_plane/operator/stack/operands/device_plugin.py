"""NVIDIA's device plugin, which offers cards to pods on nodes where the agent does not."""

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import KernelAddOn, on
from gpu_control_plane.operator.stack.cdi import tell_cdi
from gpu_control_plane.operator.stack.common_settings import operand
from gpu_control_plane.operator.stack.daemonset_manifest import Container, DaemonSet
from gpu_control_plane.operator.stack.mig import tell_mig
from gpu_control_plane.operator.stack.mps import move_mps
from gpu_control_plane.operator.stack.plugin_config import DEVICE_PLUGIN_IMAGE, choose_config
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant, by_runtime_class


def enabled(policy: ClusterPolicySpec) -> bool:
    return on(policy.device_plugin.enabled, absent=True)


def _transform(daemonset: DaemonSet, stage: Stage, _variant: Variant) -> None:
    policy = stage.policy
    operand(daemonset, policy.device_plugin, stage, image=DEVICE_PLUGIN_IMAGE)
    choose_config(daemonset, policy.device_plugin, stage)
    _hand_out_by_cdi(daemonset.main, policy)
    _offer_add_ons(daemonset.main, policy)
    tell_mig(daemonset.main, policy)
    move_mps(daemonset, policy)


def _hand_out_by_cdi(container: Container, policy: ClusterPolicySpec) -> None:
    tell_cdi(container, policy)
    if policy.cdi.enabled:
        container.set_env("DEVICE_LIST_STRATEGY", "cdi-annotations,cdi-cri")
        container.set_env("CDI_ANNOTATION_PREFIX", "cdi.k8s.io/")


def _offer_add_ons(container: Container, policy: ClusterPolicySpec) -> None:
    """What else a pod with a card gets. Where the policy is silent the entrypoint looks at the kernel's modules."""
    if _loaded(policy.gds):
        container.set_env("GDS_ENABLED", "true")
        container.set_env("MOFED_ENABLED", "true")
    if _loaded(policy.gdrcopy):
        container.set_env("GDRCOPY_ENABLED", "true")


def _loaded(add_on: KernelAddOn | None) -> bool:
    return add_on is not None and on(add_on.enabled, absent=False)


STATE = State(
    name="state-device-plugin",
    enabled=enabled,
    transform=_transform,
    variants=by_runtime_class,
    env=lambda policy: policy.device_plugin.env,
    runtime_class=True,
)
