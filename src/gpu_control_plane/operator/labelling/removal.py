"""Takes the labels of the software stack off all nodes, once this product is gone from a cluster.

NVIDIA's operator writes the same labels. Its own are left alone: in a cluster where no node carries a label that only
we write, and where it is in charge now.
"""

from collections.abc import Callable
from datetime import datetime

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import Conflict, Forbidden, NotFound
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.operator.labelling.decide import NOTHING, Change, cleanup, managed
from gpu_control_plane.operator.labelling.patch import patch_node
from gpu_control_plane.operator.rival import SELECTION, TimedLease, judge

_ATTEMPTS = 5


async def clean_nodes(client: Client, now: Callable[[], datetime] = utc_now) -> int:
    """Take everything of ours off all nodes; how many were changed. Safe to repeat."""
    nodes = await client.list(Node)
    if not any(managed(node) for node in nodes):
        return 0
    removed = _only_ours if await _rival_in_charge(client, now()) else cleanup
    return sum([await _clean(client, node, removed) for node in nodes])


async def _clean(client: Client, node: Node, removed: Callable[[Node], Change]) -> bool:
    """The kubelet writes to its Node, too. Who comes second looks again, and the last word is a failure."""
    for attempt in range(1, _ATTEMPTS + 1):
        change = removed(node)
        if not change:
            return False
        try:
            await patch_node(client, node, change)
        except NotFound:
            return False
        except Conflict:
            if attempt == _ATTEMPTS:
                raise
            node = await client.get(Node, node.name)
        else:
            return True
    return False


def _only_ours(node: Node) -> Change:
    return Change({NodeLabel.RUNTIME.value: None}, {}, "another operator is in charge") if managed(node) else NOTHING


async def _rival_in_charge(client: Client, now: datetime) -> bool:
    """Whether NVIDIA's operator is. Without its labels every node would lose its driver, so who may not look at Leases
    takes it to be."""
    try:
        leases = await client.list(TimedLease, SELECTION)
    except Forbidden:
        return True
    return judge(leases, now) is not None
