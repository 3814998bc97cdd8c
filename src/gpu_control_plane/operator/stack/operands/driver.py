"""The driver of a ClusterPolicy: a DaemonSet for each operating system, kernel or release of Red Hat CoreOS.

With `useNvidiaDriverCRD` this state is off, and its DaemonSets are deleted without their pods: drivers stay loaded
until the upgrade of each node replaces them.
"""

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.operator.cluster_policy import uses_driver_crd
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.driver.apply_spec import apply_driver_spec
from gpu_control_plane.operator.stack.driver.digest import add_driver_digest
from gpu_control_plane.operator.stack.driver.driver_spec import from_policy
from gpu_control_plane.operator.stack.driver.openshift import trusted_ca
from gpu_control_plane.operator.stack.driver.variants import (
    built_in_toolkit,
    by_kernel,
    by_release,
    full_name,
    kernel_name,
    variant_runtime,
)
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import RenderError, RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.variants import Variant, by_system, restricted_to


def _enabled(policy: ClusterPolicySpec) -> bool:
    return on(policy.driver.enabled, absent=True) and not uses_driver_crd(policy)


def secrets_of(policy: ClusterPolicySpec) -> tuple[str, ...]:
    """The Secrets that the driver of a ClusterPolicy needs; none if it brings no driver."""
    return from_policy(policy).secrets if _enabled(policy) else ()


def _variants(render_input: RenderInput, name: str) -> tuple[Variant, ...]:
    """Only nodes that get a driver container count. Variants by kernel and by release have the names that NVIDIA's
    operator gives them."""
    render_input = restricted_to(render_input, lambda kind: kind.driver)
    if not render_input.kinds:
        return ()
    if on(render_input.policy.driver.use_precompiled, absent=False):
        found = [_named(variant, name, _kernel_name(variant)) for variant in by_kernel(render_input.kinds, whole=True)]
        if not found:
            raise RenderError(
                "no GPU node says which kernel and operating system it has, and a precompiled driver depends on both:"
                f" Node Feature Discovery sets the labels {NodeLabel.KERNEL} and {NodeLabel.OS_ID}"
            )
    elif built_in_toolkit(render_input.openshift, render_input.policy, render_input.kinds, precompiled=False):
        found = [_named(variant, name, variant.ostree) for variant in by_release(render_input.kinds)]
    else:
        found = list(by_system(render_input, name))
    return tuple(
        msgspec.structs.replace(variant, runtime=variant_runtime(variant, render_input.kinds)) for variant in found
    )


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, variant: Variant) -> None:
    apply_driver_spec(daemonset, from_policy(render_input.policy), variant, render_input.platform)


def _objects(manifests: list[Manifest], render_input: RenderInput) -> list[Manifest]:
    return trusted_ca(manifests, render_input.openshift)


def _named(variant: Variant, name: str, rest: str) -> Variant:
    return msgspec.structs.replace(variant, name=f"{name}-{rest}")


def _kernel_name(variant: Variant) -> str:
    return f"{kernel_name(variant.kernel)}-{full_name(variant.system).lower()}" if variant.system else ""


STATE = StackState(
    name="state-driver",
    enabled=_enabled,
    transform=_transform,
    objects=_objects,
    variants=_variants,
    env=lambda policy: policy.driver.env,
    finish=add_driver_digest,
    orphan=uses_driver_crd,
)
