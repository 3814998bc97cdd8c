"""The driver of a ClusterPolicy: a DaemonSet for each operating system, kernel or release of Red Hat CoreOS.

With NVIDIADrivers switched on this state is off, and its DaemonSets go without their pods: drivers stay loaded until
the upgrade of each node replaces them.
"""

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.driver.apply_spec import fit
from gpu_control_plane.operator.stack.driver.digest import seal
from gpu_control_plane.operator.stack.driver.driver_spec import from_policy
from gpu_control_plane.operator.stack.driver.openshift import trusted_ca
from gpu_control_plane.operator.stack.driver.variants import (
    built_in_toolkit,
    by_kernel,
    by_release,
    full_name,
    kernel_word,
    runtime_in,
)
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import CannotRender, Stage
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant, by_system, only


def handed_over(policy: ClusterPolicySpec) -> bool:
    """Whether NVIDIADrivers say which driver goes where."""
    return on(policy.driver.use_nvidia_driver_crd, absent=False)


def _enabled(policy: ClusterPolicySpec) -> bool:
    return on(policy.driver.enabled, absent=True) and not handed_over(policy)


def _variants(stage: Stage, name: str) -> tuple[Variant, ...]:
    """Only nodes that get a driver from here count. The names of the last two kinds are known from before there were
    several systems, so they are kept."""
    stage = only(stage, lambda kind: kind.driver)
    if not stage.kinds:
        return ()
    if on(stage.policy.driver.use_precompiled, absent=False):
        found = [_named(place, name, _kernel_name(place)) for place in by_kernel(stage.kinds, whole=True)]
        if not found:
            raise CannotRender(
                "no GPU node says which kernel and operating system it has, and a precompiled driver depends on both:"
                f" Node Feature Discovery sets the labels {NodeLabel.KERNEL} and {NodeLabel.OS_ID}"
            )
    elif built_in_toolkit(stage.openshift, stage.policy, stage.kinds, precompiled=False):
        found = [_named(place, name, place.ostree) for place in by_release(stage.kinds)]
    else:
        found = list(by_system(stage, name))
    return tuple(msgspec.structs.replace(place, runtime=runtime_in(place, stage.kinds)) for place in found)


def _transform(daemonset: DaemonSet, stage: Stage, variant: Variant) -> None:
    fit(daemonset, from_policy(stage.policy), variant, stage.platform)


def _objects(manifests: list[Manifest], stage: Stage) -> list[Manifest]:
    return trusted_ca(manifests, stage.openshift)


def _named(place: Variant, name: str, rest: str) -> Variant:
    return msgspec.structs.replace(place, name=f"{name}-{rest}")


def _kernel_name(place: Variant) -> str:
    return f"{kernel_word(place.kernel)}-{full_name(place.system).lower()}" if place.system else ""


STATE = State(
    name="state-driver",
    enabled=_enabled,
    transform=_transform,
    objects=_objects,
    variants=_variants,
    env=lambda policy: policy.driver.env,
    seal=seal,
    orphan=handed_over,
)
