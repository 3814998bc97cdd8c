"""The nodes of an NVIDIADriver, and the variants of its driver that they need. Pure.

A node belongs to the NVIDIADriver that its owner label names. The selector decides about the label only: until the
label changes, the driver on the node stays.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.api.nvidia.nvidiadriver import DriverType
from gpu_control_plane.operator.drivers.owner import ParsedDriver
from gpu_control_plane.operator.node_facts import NodeKind, is_gpu_node, node_kind
from gpu_control_plane.operator.stack.driver.driver_spec import DriverSpec
from gpu_control_plane.operator.stack.driver.variants import (
    built_in_toolkit,
    by_kernel,
    by_release,
    by_system,
    variant_runtime,
)
from gpu_control_plane.operator.stack.render_input import Platform
from gpu_control_plane.operator.stack.variants import Variant


def nodes_with_driver(driver: ParsedDriver, nodes: Iterable[Node]) -> list[Node]:
    """The GPU nodes whose owner label names the NVIDIADriver and whose deploy label asks for a driver. A node without a
    driver need not say which system it has, and is not reported as missing. A vGPU host driver has a deploy label of
    its own."""
    host = driver.spec is not None and driver.spec.driver_type is DriverType.VGPU_HOST_MANAGER
    return [
        node
        for node in nodes
        if is_gpu_node(node.metadata.labels)
        and node.metadata.labels.get(NodeLabel.DRIVER_OWNER) == driver.name
        and (node_kind(node).vgpu if host else node_kind(node).driver)
    ]


def driver_variants(
    kinds: Counter[NodeKind], driver_spec: DriverSpec, platform: Platform, policy: ClusterPolicySpec | None
) -> list[Variant]:
    """By operating system, for a precompiled driver also by kernel, in OpenShift's Driver Toolkit by release."""
    if driver_spec.precompiled:
        found = by_kernel(kinds, whole=False)
    elif built_in_toolkit(platform.openshift, policy, kinds, precompiled=False):
        found = by_release(kinds)
    else:
        found = by_system(kinds)
    return [msgspec.structs.replace(variant, runtime=variant_runtime(variant, kinds)) for variant in found]


def kinds_of(nodes: Iterable[Node]) -> Counter[NodeKind]:
    return Counter(map(node_kind, nodes))


def unidentified_nodes(nodes: Sequence[Node], driver_spec: DriverSpec) -> list[str]:
    """Nodes that get no driver because their labels do not say which one they need."""
    return sorted(node.name for node in nodes if not _identified(node_kind(node), driver_spec))


def _identified(kind: NodeKind, driver_spec: DriverSpec) -> bool:
    return kind.system is not None and (bool(kind.kernel) or not driver_spec.precompiled)
