"""Takes the software stack off all nodes, once this product is gone from a cluster: its labels, and what an upgrade of
drivers that was under way has left, a cordon among it.

NVIDIA's operator writes the same labels. Its own are left alone: in a cluster where no node carries a label that only
we write, and where it is in charge now.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import Conflict, Forbidden, NotFound
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.operator.labelling.decide import cleanup, managed
from gpu_control_plane.operator.nvidia_lease import SELECTION, TimedLease, judge
from gpu_control_plane.operator.upgrade.node_view import NodeView
from gpu_control_plane.operator.upgrade.step import switch_off

_ATTEMPTS = 5

type Patch = dict[str, dict[str, object]]
"""A merge patch of a Node; empty when there is nothing to do."""


async def clean_nodes(client: Client, now: Callable[[], datetime] = utc_now) -> int:
    """Take everything of ours off all nodes; how many were changed. Safe to repeat."""
    nodes = await client.list(Node)
    if not any(managed(node) for node in nodes):
        return 0
    removed = _only_ours if await _rival_in_charge(client, now()) else _everything
    return sum([await _clean(client, node, removed) for node in nodes])


async def _clean(client: Client, node: Node, removed: Callable[[Node], Patch]) -> bool:
    """The kubelet writes to its Node, too. Who comes second looks again, and the last word is a failure."""
    for attempt in range(1, _ATTEMPTS + 1):
        patch = removed(node)
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


def _everything(node: Node) -> Patch:
    meta, stack = node.metadata, cleanup(node)
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


def _only_ours(node: Node) -> Patch:
    return _without({NodeLabel.RUNTIME.value} if managed(node) else (), ())


def _without(labels: Iterable[str], annotations: Iterable[str]) -> Patch:
    fields = {"labels": dict.fromkeys(sorted(labels)), "annotations": dict.fromkeys(sorted(annotations))}
    metadata: dict[str, object] = {name: values for name, values in fields.items() if values}
    return {"metadata": metadata} if metadata else {}


def _held(names: Iterable[str], held: Mapping[str, str]) -> set[str]:
    return {str(name) for name in names if name in held}


async def _rival_in_charge(client: Client, now: datetime) -> bool:
    """Whether NVIDIA's operator is. Without its labels every node would lose its driver, so who may not look at Leases
    takes it to be."""
    try:
        leases = await client.list(TimedLease, SELECTION)
    except Forbidden:
        return True
    return judge(leases, now) is not None
