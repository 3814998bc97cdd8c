"""What is computed from a whole fleet is computed once for everybody who sees that fleet: parts of a page, and people
with the same rights, share it."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from starlette.requests import Request

from gpu_control_plane.views.fleet import Fleet

_MOST: Final = 16


def per_fleet[T](compute: Callable[[Fleet], T]) -> Callable[[Fleet], T]:
    """Remember the results for the latest fleets. A fleet never changes: a change makes another one."""
    held: OrderedDict[int, tuple[Fleet, T]] = OrderedDict()

    def remembered(fleet: Fleet) -> T:
        found = held.get(id(fleet))
        if found is None:
            found = held[id(fleet)] = fleet, compute(fleet)
            if len(held) > _MOST:
                held.popitem(last=False)
        return found[1]

    return remembered


async def fleet_of(request: Request) -> Fleet:
    """What the person may see of the fleet."""
    fleet: Fleet = await request.app.state.fleet(request.state.viewer)
    return fleet
