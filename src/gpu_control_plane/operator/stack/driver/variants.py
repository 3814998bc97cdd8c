"""Which variants of a driver a fleet needs: by operating system, kernel or release of Red Hat CoreOS. Pure.

A driver that is built on the node depends on its system; a precompiled one on the kernel as well; one that is built in
OpenShift's Driver Toolkit on the release of CoreOS. A node whose labels do not say what is needed is left out.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.operator.node_facts import ContainerRuntime, NodeKind, OperatingSystem
from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.render_input import RenderError
from gpu_control_plane.operator.stack.variants import Variant

_ARCHITECTURE: Final = re.compile(r"[._-]?(x86_64|aarch64|arm64|amd64|ppc64le)")
_FORBIDDEN: Final = re.compile(r"[^a-z0-9.-]+")
_LABEL_LIMIT: Final = 63


def kernel_name(kernel: str) -> str:
    """A kernel as part of an object's name: without its architecture and without characters that names may not have."""
    name = _ARCHITECTURE.sub("", kernel).lower().replace("_", ".")
    return _FORBIDDEN.sub("-", name).strip(".-")


def by_system(kinds: Iterable[NodeKind]) -> list[Variant]:
    """One variant for each tag of an operating system."""
    known = sorted({kind.system for kind in kinds if kind.system is not None})
    first = {system.tag: system for system in reversed(known)}
    return [Variant(label=tag, system=system, selector=system.selector) for tag, system in sorted(first.items())]


def by_kernel(kinds: Iterable[NodeKind], *, whole: bool) -> list[Variant]:
    """One variant for each kernel and operating system; `whole` says that the full version of the system counts, not
    only what its tag has of it.

    Variants by full version have names without the architecture, for compatibility with NVIDIA's operator. Two kernels
    with the same such name would replace each other for ever, so they are refused.
    """
    first: dict[tuple[str, str], OperatingSystem] = {}
    for kind in kinds:
        if kind.system is not None and kind.kernel:
            key = kind.kernel, full_name(kind.system) if whole else kind.system.tag
            first[key] = min(first.get(key, kind.system), kind.system)
    names = Counter((kernel_name(kernel), name) for kernel, name in first)
    if whole and (twice := sorted(kernel for kernel, name in first if names[kernel_name(kernel), name] > 1)):
        raise RenderError(
            f"precompiled drivers for the kernels {' and '.join(twice)} would have one name:"
            " bring them by an NVIDIADriver (driver.useNvidiaDriverCRD), which tells them apart"
        )
    return [
        Variant(
            label=f"{kernel_name(kernel)}-{name}"[:_LABEL_LIMIT].rstrip("-."),
            system=system,
            kernel=kernel,
            selector={NodeLabel.KERNEL: kernel, **(_exactly(system) if whole else system.selector)},
        )
        for (kernel, name), system in sorted(first.items())
    ]


def by_release(kinds: Iterable[NodeKind]) -> list[Variant]:
    """One variant for each release of Red Hat CoreOS."""
    first: dict[str, OperatingSystem] = {}
    for kind in kinds:
        if kind.system is not None and kind.ostree:
            first[kind.ostree] = min(first.get(kind.ostree, kind.system), kind.system)
    return [
        Variant(
            label=ostree,
            system=system,
            ostree=ostree,
            runtime=ContainerRuntime.CRIO,
            selector={NodeLabel.OSTREE: ostree},
        )
        for ostree, system in sorted(first.items())
    ]


def full_name(system: OperatingSystem) -> str:
    """A system with its full version: `rhel9.4`, where images are tagged `rhel9`."""
    return f"{system.id}{system.version}"


def built_in_toolkit(
    openshift: OpenShift | None,
    policy: ClusterPolicySpec | None,
    kinds: Mapping[NodeKind, int],
    *,
    precompiled: bool,
) -> bool:
    """Whether the driver is built in OpenShift's Driver Toolkit: wherever there is one, unless it is switched off."""
    if openshift is None or precompiled or not openshift.toolkit_images:
        return False
    wanted = on(policy.operator.use_ocp_driver_toolkit if policy is not None else None, absent=True)
    return wanted and any(kind.ostree for kind in kinds)


def variant_runtime(variant: Variant, kinds: Iterable[NodeKind]) -> ContainerRuntime:
    """The container runtime of a variant: CRI-O, which brings subscriptions itself, only if all of its nodes have
    it."""
    found = {
        kind.runtime
        for kind in kinds
        if kind.system is not None
        and variant.system is not None
        and kind.system.tag == variant.system.tag
        and variant.kernel in ("", kind.kernel)
    }
    return ContainerRuntime.CRIO if found == {ContainerRuntime.CRIO} else ContainerRuntime.CONTAINERD


def _exactly(system: OperatingSystem) -> dict[str, str]:
    return {NodeLabel.OS_ID: system.id, NodeLabel.OS_VERSION: system.version}
