"""Removes the software stack's labels and annotations from all nodes when this product is uninstalled, with what an
unfinished driver upgrade has left on them, such as a cordon.

NVIDIA's operator writes the same labels. They stay in a cluster where no node carries a label that only this operator
writes, and where NVIDIA's operator is active now.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import Conflict, Forbidden, NotFound
from gpu_control_plane.kube.lease_watch import TimedLease, active_holder, observe
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.operator.labelling.decide import labelled_by_us, removal_patch
from gpu_control_plane.operator.nvidia_lease import LEASE_SELECTION
from gpu_control_plane.operator.upgrade.node_view import NodeView
from gpu_control_plane.operator.upgrade.step import switch_off
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces

_ATTEMPTS = 5

type MergePatch = dict[str, dict[str, object]]
"""A merge patch of a Node; empty when there is nothing to do."""


async def clean_nodes(client: Client, trusted: TrustedNamespaces, now: Callable[[], datetime] = utc_now) -> int:
    """Remove everything of ours from all nodes; the number of nodes that were changed. Safe to repeat."""
    nodes = await client.list(Node)
    if not any(labelled_by_us(node) for node in nodes):
        return 0
    patch_of = _only_our_label if await _nvidia_operator_active(client, trusted, now()) else _everything
    return sum([await _clean(client, node, patch_of) for node in nodes])


async def _clean(client: Client, node: Node, patch_of: Callable[[Node], MergePatch]) -> bool:
    """The kubelet writes to its Node, too: a conflict is tried again with the Node as it is then, a few times."""
    for attempt in range(1, _ATTEMPTS + 1):
        patch = patch_of(node)
        if not patch:
            return False
        try:
            await client.patch(Node, node.name, patch, resource_version=node.metadata.resource_version)
        except NotFound:
            return False
        except Conflict:
            if attempt == _ATTEMPTS:
                raise
            node = await client.get(Node, node.name)
        else:
            return True
    return False


def _everything(node: Node) -> MergePatch:
    meta, stack = node.metadata, removal_patch(node)
    upgrade = switch_off(
        NodeView(
            name=node.name,
            labels=meta.labels,
            annotations=meta.annotations,
            unschedulable=node.spec.unschedulable,
        )
    )
    patch = _without(
        {*stack.labels, *(_held(upgrade.labels, meta.labels) if upgrade else ())},
        {*stack.annotations, *(_held(upgrade.annotations, meta.annotations) if upgrade else ())},
    )
    if upgrade is not None and upgrade.unschedulable is False and node.spec.unschedulable:
        patch["spec"] = {"unschedulable": None}
    return patch


def _only_our_label(node: Node) -> MergePatch:
    return _without({NodeLabel.RUNTIME.value} if labelled_by_us(node) else (), ())


def _without(labels: Iterable[str], annotations: Iterable[str]) -> MergePatch:
    fields = {"labels": dict.fromkeys(sorted(labels)), "annotations": dict.fromkeys(sorted(annotations))}
    metadata: dict[str, object] = {name: values for name, values in fields.items() if values}
    return {"metadata": metadata} if metadata else {}


def _held(names: Iterable[str], held: Mapping[str, str]) -> set[str]:
    return {str(name) for name in names if name in held}


async def _nvidia_operator_active(client: Client, trusted: TrustedNamespaces, now: datetime) -> bool:
    """Whether NVIDIA's operator is active. A process that may not list Leases assumes so: if the labels were removed
    while it is, every node would lose its driver."""
    try:
        leases = await client.list(TimedLease, LEASE_SELECTION)
    except Forbidden:
        return True
    believed = (observe(lease, now) for lease in leases if trusted.include(lease.metadata.namespace))
    return active_holder(believed, now) is not None
