"""The capacity of a pool in units, resource by resource, kept node by node, so that a change on one node costs the work
of one node.

Counting 40,000 cards anew for every change would stop the event loop for a fifth of a second each time.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.allocation import Allocation
from gpu_control_plane.api.gpupool import MAX_WORST_NODES, Capacity, Units, WorstNode
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.pools.node_capacity import NodeCapacity, NodeProblem

_FIELDS: Final = Units.__struct_fields__


class PoolCapacity:
    """The sum over the nodes of a pool."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeCapacity] = {}
        self._troubled: dict[str, WorstNode] = {}
        self._problems: dict[str, NodeProblem] = {}
        self._sums: dict[str, dict[str, int]] = {}
        self.offered = 0
        self.reserved: Mapping[str, int] = {}
        """Free units, by resource, that are promised to pods. Nodes know nothing of it."""

    def put(self, node: str, capacity: NodeCapacity | None) -> None:
        """What a node contributes now; None when it has no card of the pool any more."""
        self._add(self._nodes.pop(node, None), -1)
        self._troubled.pop(node, None)
        self._problems.pop(node, None)
        if capacity is None:
            return
        self._nodes[node] = capacity
        self._add(capacity, +1)
        if capacity.trouble is not None:
            self._troubled[node] = capacity.trouble
        if capacity.problem is not None:
            self._problems[node] = capacity.problem

    @property
    def units(self) -> Units:
        """The units of all resources together."""
        sums = [self._counted(name) for name in self._sums]
        return Units(**{field: sum(each[field] for each in sums) for field in _FIELDS})

    def resources(self, names: Iterable[str]) -> tuple[Capacity, ...]:
        """The units of each resource: of these, in this order, and of others that nodes still have."""
        kept = dict.fromkeys((*names, *sorted(name for name, sums in self._sums.items() if sums["total"])))
        return tuple(Capacity(name=name, **self._counted(name)) for name in kept)

    @property
    def free(self) -> dict[str, dict[str, int]]:
        """Units that a pod could have now, by node and resource."""
        return {
            node: {each.name: each.available for each in capacity.resources}
            for node, capacity in self._nodes.items()
            if any(each.available for each in capacity.resources)
        }

    def _counted(self, name: str) -> dict[str, int]:
        sums = self._sums.get(name) or dict.fromkeys(_FIELDS, 0)
        reserved = min(self.reserved.get(name, 0), sums["available"])
        return {**sums, "reserved": reserved, "available": sums["available"] - reserved}

    @property
    def nodes(self) -> int:
        return len(self._nodes)

    def on_nodes(self, resource: str) -> Iterator[tuple[str, Capacity]]:
        """What each node has of a resource."""
        for node, capacity in self._nodes.items():
            for each in capacity.resources:
                if each.name == resource:
                    yield node, each

    @property
    def ready(self) -> int:
        return len(self._nodes) - len(self._troubled)

    @property
    def worst(self) -> tuple[WorstNode, ...]:
        """The nodes most in need of attention, worst first."""
        return tuple(sorted(self._troubled.values(), key=lambda node: (-node.cards, node.name))[:MAX_WORST_NODES])

    @property
    def problem(self) -> NodeProblem | None:
        """The worst order that a node cannot carry out, with the number of other nodes that cannot either."""
        if not self._problems:
            return None
        worst, others = min(self._problems.values()), len(self._problems) - 1
        if not others:
            return worst
        more = counted(others, "other node")
        return msgspec.structs.replace(worst, message=f"{worst.message} (and on {more})")

    def busy_nodes(self) -> dict[str, int]:
        """Nodes with a card of the pool that is ordered, on offer or in use, and the units that pods hold there."""
        return {node: found.used for node, found in self._nodes.items() if found.busy}

    def nodes_without(self, allocation: Allocation) -> dict[str, int]:
        """Nodes that should offer all their cards of the pool divided like this, and do not; with the units that pods
        hold there."""
        return {
            node: found.used
            for node, found in self._nodes.items()
            if not found.offers(allocation) and (found.used or not found.absent)
        }

    def next_node(self, allocation: Allocation) -> str | None:
        """The node that is to divide its cards like this next: the one on which the fewest units are in use, those
        that are not ready last. None while a node has cards left that no pod holds, or where all have begun."""
        if any(found.unfinished and found.ordered == allocation and not found.absent for found in self._nodes.values()):
            return None
        waiting = (
            (found.absent, found.used, node) for node, found in self._nodes.items() if found.ordered != allocation
        )
        return min(waiting, default=(False, 0, None))[2]

    def _add(self, capacity: NodeCapacity | None, sign: int) -> None:
        for each in capacity.resources if capacity is not None else ():
            sums = self._sums.setdefault(each.name, dict.fromkeys(_FIELDS, 0))
            for field in _FIELDS:
                sums[field] += sign * getattr(each, field)
            if not sums["total"]:
                del self._sums[each.name]
        if capacity is not None:
            self.offered += sign * capacity.offered
