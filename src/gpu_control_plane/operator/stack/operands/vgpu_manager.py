"""The vGPU manager: the host driver that gives virtual machines parts of cards.

It is replaced only when its pod is deleted: a rolling update would take cards away from running virtual machines.
"""

import msgspec

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.operator.stack.common_settings import operand
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.driver.driver_spec import DriverWish
from gpu_control_plane.operator.stack.driver.mounts import add_files
from gpu_control_plane.operator.stack.driver.openshift import add_openshift
from gpu_control_plane.operator.stack.driver.system_image import system_image
from gpu_control_plane.operator.stack.driver.variants import built_in_toolkit, by_release
from gpu_control_plane.operator.stack.driver_manager import driver_manager
from gpu_control_plane.operator.stack.operands.driver import handed_over
from gpu_control_plane.operator.stack.render_input import CannotRender, Platform, Stage
from gpu_control_plane.operator.stack.sandbox import deployed
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant, by_system, find_its_own, only


def _enabled(policy: ClusterPolicySpec) -> bool:
    """NVIDIADrivers, where they are used, bring host drivers as well."""
    return deployed(policy, policy.vgpu_manager) and not handed_over(policy)


def _variants(stage: Stage, name: str) -> tuple[Variant, ...]:
    """Systems; on OpenShift releases of CoreOS, under the names that they have had there all along. Only nodes whose
    cards are for vGPUs count."""
    stage = only(stage, lambda kind: kind.vgpu)
    if not stage.kinds:
        return ()
    if built_in_toolkit(stage.openshift, stage.policy, stage.kinds, precompiled=False):
        places = by_release(stage.kinds)
        return tuple(msgspec.structs.replace(place, name=f"{name}-{place.ostree}") for place in places)
    return by_system(stage, name)


def _transform(daemonset: DaemonSet, stage: Stage, variant: Variant) -> None:
    section, system = stage.policy.vgpu_manager, variant.system
    if system is None:
        raise CannotRender("a vGPU manager cannot be chosen for nodes that do not say which operating system they have")
    driver_manager(daemonset, section.driver_manager, stage.platform, resources=section.resources)
    operand(daemonset, section, stage, image="VGPU_MANAGER_IMAGE")
    main = daemonset.main
    main.manifest["image"] = system_image(main.manifest["image"], system.tag, what="the vGPU manager")
    config = section.kernel_module_config
    wish = DriverWish(image=section, parameters=config.name if config else "")
    add_files(daemonset, wish, system, stage.platform)
    add_openshift(daemonset, variant, _without_certificates(stage.platform))
    find_its_own(daemonset, variant)


def _without_certificates(platform: Platform) -> Platform:
    """The ConfigMap with the proxy's certificates belongs to the driver and is not there without it."""
    if platform.openshift is None:
        return platform
    return msgspec.structs.replace(platform, openshift=msgspec.structs.replace(platform.openshift, proxy_ca=False))


STATE = State(
    name="state-vgpu-manager",
    enabled=_enabled,
    transform=_transform,
    variants=_variants,
    env=lambda policy: policy.vgpu_manager.env,
    orphan=handed_over,
)
