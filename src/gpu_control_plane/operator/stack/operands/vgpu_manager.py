"""The vGPU manager: the host driver that gives vGPU devices to virtual machines.

It is replaced only when its pod is deleted: a rolling update would take cards away from running virtual machines.
"""

import msgspec

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.operator.cluster_policy import uses_driver_crd
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.driver.driver_spec import DriverSpec
from gpu_control_plane.operator.stack.driver.mounts import add_files
from gpu_control_plane.operator.stack.driver.openshift import add_openshift
from gpu_control_plane.operator.stack.driver.variants import built_in_toolkit, by_release
from gpu_control_plane.operator.stack.images import system_image
from gpu_control_plane.operator.stack.render_input import Platform, RenderError, RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import apply_operand_section, configure_driver_manager, sandbox_enabled
from gpu_control_plane.operator.stack.variants import Variant, by_system, restricted_to, select_own_pods


def _enabled(policy: ClusterPolicySpec) -> bool:
    """NVIDIADrivers, where they are used, bring host drivers as well."""
    return sandbox_enabled(policy, policy.vgpu_manager) and not uses_driver_crd(policy)


def _variants(render_input: RenderInput, name: str) -> tuple[Variant, ...]:
    """By operating system; on OpenShift by release of CoreOS, under the names that NVIDIA's operator gives them. Only
    nodes whose cards are for vGPUs count."""
    render_input = restricted_to(render_input, lambda kind: kind.vgpu)
    if not render_input.kinds:
        return ()
    if built_in_toolkit(render_input.openshift, render_input.policy, render_input.kinds, precompiled=False):
        variants = by_release(render_input.kinds)
        return tuple(msgspec.structs.replace(variant, name=f"{name}-{variant.ostree}") for variant in variants)
    return by_system(render_input, name)


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, variant: Variant) -> None:
    section, system = render_input.policy.vgpu_manager, variant.system
    if system is None:
        raise RenderError("a vGPU manager cannot be chosen for nodes that do not say which operating system they have")
    configure_driver_manager(daemonset, section.driver_manager, render_input.platform, resources=section.resources)
    apply_operand_section(daemonset, section, render_input, image="VGPU_MANAGER_IMAGE")
    main = daemonset.main
    main.manifest["image"] = system_image(main.manifest["image"], system.tag, what="the vGPU manager")
    config = section.kernel_module_config
    driver_spec = DriverSpec(image=section, parameters=config.name if config else "")
    add_files(daemonset, driver_spec, system, render_input.platform)
    add_openshift(daemonset, variant, _without_certificates(render_input.platform))
    select_own_pods(daemonset, variant)


def _without_certificates(platform: Platform) -> Platform:
    """The ConfigMap with the proxy's certificates belongs to the driver's state and does not exist without it."""
    if platform.openshift is None:
        return platform
    return msgspec.structs.replace(platform, openshift=msgspec.structs.replace(platform.openshift, proxy_ca=False))


STATE = StackState(
    name="state-vgpu-manager",
    enabled=_enabled,
    transform=_transform,
    variants=_variants,
    env=lambda policy: policy.vgpu_manager.env,
    orphan=uses_driver_crd,
)
