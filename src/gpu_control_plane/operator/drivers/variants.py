"""The nodes of an NVIDIADriver, divided into pools that can share a DaemonSet. Pure.

A node belongs to the NVIDIADriver that its label names. What its selector says decided about the label, and has no say
afterwards: until the label changes, the driver on the node stays.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.api.nvidia.nvidiadriver import DriverType
from gpu_control_plane.operator.drivers.owner import Driver
from gpu_control_plane.operator.node_facts import NodeKind, gpu_present, kind_of
from gpu_control_plane.operator.stack.driver.driver_spec import DriverWish
from gpu_control_plane.operator.stack.driver.variants import (
    built_in_toolkit,
    by_kernel,
    by_release,
    by_system,
    runtime_in,
)
from gpu_control_plane.operator.stack.render_input import Platform
from gpu_control_plane.operator.stack.variants import Variant


def nodes_of(driver: Driver, nodes: Iterable[Node]) -> list[Node]:
    """The GPU nodes that carry the NVIDIADriver's name, without those to which no driver goes: who needs none need not
    say which system it has, and is not missed. The driver of a host goes by another label than one of containers."""
    host = driver.spec is not None and driver.spec.driver_type is DriverType.VGPU_HOST_MANAGER
    return [
        node
        for node in nodes
        if gpu_present(node.metadata.labels)
        and node.metadata.labels.get(NodeLabel.DRIVER_OWNER) == driver.name
        and (kind_of(node).vgpu if host else kind_of(node).driver)
    ]


def pools(
    kinds: Counter[NodeKind], wish: DriverWish, platform: Platform, policy: ClusterPolicySpec | None
) -> list[Variant]:
    """One for each operating system, and for each kernel of a precompiled driver, or for each release of CoreOS."""
    if wish.precompiled:
        found = by_kernel(kinds, whole=False)
    elif built_in_toolkit(platform.openshift, policy, kinds, precompiled=False):
        found = by_release(kinds)
    else:
        found = by_system(kinds)
    return [msgspec.structs.replace(place, runtime=runtime_in(place, kinds)) for place in found]


def kinds_of(nodes: Iterable[Node]) -> Counter[NodeKind]:
    return Counter(map(kind_of, nodes))


def left_out(nodes: Sequence[Node], wish: DriverWish) -> list[str]:
    """Nodes that get no driver because their labels do not say which one."""
    return sorted(node.name for node in nodes if not _known(kind_of(node), wish))


def _known(kind: NodeKind, wish: DriverWish) -> bool:
    return kind.system is not None and (bool(kind.kernel) or not wish.precompiled)
