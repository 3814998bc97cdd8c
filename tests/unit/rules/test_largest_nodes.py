"""The largest node, by resource, follows the orders of all nodes."""

import msgspec

from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.rules.largest_nodes import LargestNodes
from unit.operator.scripted_cache import ScriptedCache, running


def ordered(node: str, *units: int, resource: str = "gpu.deckhouse.io/training") -> GPUNodeState:
    """A node with a card for each number of units."""
    orders = [
        {
            "inventoryID": f"{node}-{number}",
            "pool": "training",
            "resources": [{"name": resource, "units": count}],
            "allocation": {"mode": "Exclusive"},
        }
        for number, count in enumerate(units)
    ]
    return msgspec.convert({"metadata": {"name": node}, "spec": {"assignments": orders}}, GPUNodeState)


async def test_the_largest_node_is_found_whatever_comes_and_goes() -> None:
    states = ScriptedCache(GPUNodeState)
    largest = LargestNodes()
    states.cache.on_change(largest.changed)
    async with running(states):
        assert largest.units("gpu.deckhouse.io/training") == 0
        await states.deliver(ordered("node-a", 1, 1))
        await states.deliver(ordered("node-b", 4))
        assert largest.units("gpu.deckhouse.io/training") == 4
        await states.deliver(ordered("node-b"))
        assert largest.units("gpu.deckhouse.io/training") == 2
        await states.deliver(ordered("node-b", 7, resource="gpu.deckhouse.io/serving"))
        assert (largest.units("gpu.deckhouse.io/training"), largest.units("gpu.deckhouse.io/serving")) == (2, 7)
        await states.deliver(ordered("node-a", 1, 1), deleted=True)
        assert largest.units("gpu.deckhouse.io/training") == 0
