"""Which nodes can share a driver pod: those with the same system, kernel or release of Red Hat CoreOS. Pure.

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
from gpu_control_plane.operator.node_facts import NodeKind, Runtime, System
from gpu_control_plane.operator.stack.render_input import CannotRender, OpenShift
from gpu_control_plane.operator.stack.variants import Variant

_ARCHITECTURE: Final = re.compile(r"[._-]?(x86_64|aarch64|arm64|amd64|ppc64le)")
_FOREIGN: Final = re.compile(r"[^a-z0-9.-]+")
_LABEL_LIMIT: Final = 63


def kernel_word(kernel: str) -> str:
    """A kernel as part of a name: without its architecture, and without what names may not hold."""
    word = _ARCHITECTURE.sub("", kernel).lower().replace("_", ".")
    return _FOREIGN.sub("-", word).strip(".-")


def by_system(kinds: Iterable[NodeKind]) -> list[Variant]:
    """One place for each tag of an operating system."""
    known = sorted({kind.system for kind in kinds if kind.system is not None})
    first = {system.tag: system for system in reversed(known)}
    return [Variant(word=tag, system=system, selector=system.selector) for tag, system in sorted(first.items())]


def by_kernel(kinds: Iterable[NodeKind], *, whole: bool) -> list[Variant]:
    """One place for each kernel and operating system; `whole` says that all of a system's version counts.

    Places that are told apart by a whole version have names without the architecture, as they have always had. Two
    kernels of one such name would take each other's place for ever, so they are refused.
    """
    first: dict[tuple[str, str], System] = {}
    for kind in kinds:
        if kind.system is not None and kind.kernel:
            key = kind.kernel, full_name(kind.system) if whole else kind.system.tag
            first[key] = min(first.get(key, kind.system), kind.system)
    words = Counter((kernel_word(kernel), name) for kernel, name in first)
    if whole and (twice := sorted(kernel for kernel, name in first if words[kernel_word(kernel), name] > 1)):
        raise CannotRender(
            f"precompiled drivers for the kernels {' and '.join(twice)} would have one name:"
            " bring them by an NVIDIADriver (driver.useNvidiaDriverCRD), which tells them apart"
        )
    return [
        Variant(
            word=f"{kernel_word(kernel)}-{name}"[:_LABEL_LIMIT].rstrip("-."),
            system=system,
            kernel=kernel,
            selector={NodeLabel.KERNEL: kernel, **(_exactly(system) if whole else system.selector)},
        )
        for (kernel, name), system in sorted(first.items())
    ]


def by_release(kinds: Iterable[NodeKind]) -> list[Variant]:
    """One place for each release of Red Hat CoreOS."""
    first: dict[str, System] = {}
    for kind in kinds:
        if kind.system is not None and kind.ostree:
            first[kind.ostree] = min(first.get(kind.ostree, kind.system), kind.system)
    return [
        Variant(
            word=ostree,
            system=system,
            ostree=ostree,
            runtime=Runtime.CRIO,
            selector={NodeLabel.OSTREE: ostree},
        )
        for ostree, system in sorted(first.items())
    ]


def full_name(system: System) -> str:
    """A system with all of its version: `rhel9.4`, where images are tagged `rhel9`."""
    return f"{system.id}{system.version}"


def built_in_toolkit(
    openshift: OpenShift | None,
    policy: ClusterPolicySpec | None,
    kinds: Mapping[NodeKind, int],
    *,
    precompiled: bool,
) -> bool:
    """Whether the driver is built in OpenShift's Driver Toolkit: unless switched off, wherever there is one."""
    if openshift is None or precompiled or not openshift.toolkit_images:
        return False
    wanted = on(policy.operator.use_ocp_driver_toolkit if policy is not None else None, absent=True)
    return wanted and any(kind.ostree for kind in kinds)


def runtime_in(place: Variant, kinds: Iterable[NodeKind]) -> Runtime:
    """The container runtime of a place: CRI-O, which brings subscriptions itself, only if all of its nodes have it."""
    found = {
        kind.runtime
        for kind in kinds
        if kind.system is not None
        and place.system is not None
        and kind.system.tag == place.system.tag
        and place.kernel in ("", kind.kernel)
    }
    return Runtime.CRIO if found == {Runtime.CRIO} else Runtime.CONTAINERD


def _exactly(system: System) -> dict[str, str]:
    return {NodeLabel.OS_ID: system.id, NodeLabel.OS_VERSION: system.version}
