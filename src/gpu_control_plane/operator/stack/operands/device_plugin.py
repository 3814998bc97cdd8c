"""NVIDIA's device plugin, which hands out cards to pods on nodes where the agent does not."""

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import KernelAddOn, on
from gpu_control_plane.operator.stack.daemonset_manifest import ContainerManifest, DaemonSetManifest
from gpu_control_plane.operator.stack.plugin_config import DEVICE_PLUGIN_IMAGE, configure_plugin_config
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import (
    apply_operand_section,
    configure_cdi,
    configure_mig,
    set_mps_root,
)
from gpu_control_plane.operator.stack.variants import Variant, by_runtime_class


def enabled(policy: ClusterPolicySpec) -> bool:
    return on(policy.device_plugin.enabled, absent=True)


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, _variant: Variant) -> None:
    policy = render_input.policy
    apply_operand_section(daemonset, policy.device_plugin, render_input, image=DEVICE_PLUGIN_IMAGE)
    configure_plugin_config(daemonset, policy.device_plugin, render_input)
    _configure_cdi_strategy(daemonset.main, policy)
    _offer_add_ons(daemonset.main, policy)
    configure_mig(daemonset.main, policy)
    set_mps_root(daemonset, policy)


def _configure_cdi_strategy(container: ContainerManifest, policy: ClusterPolicySpec) -> None:
    configure_cdi(container, policy)
    if policy.cdi.enabled:
        container.set_env("DEVICE_LIST_STRATEGY", "cdi-annotations,cdi-cri")
        container.set_env("CDI_ANNOTATION_PREFIX", "cdi.k8s.io/")


def _offer_add_ons(container: ContainerManifest, policy: ClusterPolicySpec) -> None:
    """Further devices for pods with a card. Where the policy does not say, the entrypoint looks at the loaded
    modules."""
    if _enabled(policy.gds):
        container.set_env("GDS_ENABLED", "true")
        container.set_env("MOFED_ENABLED", "true")
    if _enabled(policy.gdrcopy):
        container.set_env("GDRCOPY_ENABLED", "true")


def _enabled(add_on: KernelAddOn | None) -> bool:
    return add_on is not None and on(add_on.enabled, absent=False)


STATE = StackState(
    name="state-device-plugin",
    enabled=enabled,
    transform=_transform,
    variants=by_runtime_class,
    env=lambda policy: policy.device_plugin.env,
    runtime_class=True,
)
