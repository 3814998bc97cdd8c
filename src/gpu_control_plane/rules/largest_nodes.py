"""How many units of a resource the largest node has, kept up to date from the orders of all nodes.

Orders, and not what nodes offer at the moment: a node that is down for an hour comes back, and a Pod may wait for it.
Whoever has a cache of the nodes' states says what changes.
"""

from collections import defaultdict

from gpu_control_plane.api.gpunodestate import GPUNodeState


class LargestNodes:
    """By resource. A change of one node costs the work of one node; the maximum is looked for when it is asked for."""

    def __init__(self) -> None:
        self._units: dict[str, dict[str, int]] = defaultdict(dict)
        self._largest: dict[str, int] = {}

    def units(self, resource: str) -> int:
        """Units of the node that has the most of them; 0 while no node has any."""
        if resource not in self._units:
            return 0
        if resource not in self._largest:
            self._largest[resource] = max(self._units[resource].values())
        return self._largest[resource]

    def changed(self, old: GPUNodeState | None, new: GPUNodeState | None) -> None:
        """A node has come, changed or gone; in the shape of `Cache.on_change`."""
        was, now = _ordered_units(old), _ordered_units(new)
        state = new or old
        if state is None or was == now:
            return
        for resource in was.keys() | now.keys():
            self._largest.pop(resource, None)
            if resource in now:
                self._units[resource][state.name] = now[resource]
                continue
            del self._units[resource][state.name]
            if not self._units[resource]:
                del self._units[resource]


def _ordered_units(state: GPUNodeState | None) -> dict[str, int]:
    units: dict[str, int] = defaultdict(int)
    for order in state.spec.assignments if state is not None else ():
        for resource in order.resources:
            units[resource.name] += resource.units
    return dict(units)
