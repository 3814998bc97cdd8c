"""The software stack: its states as a pipeline, the versions of drivers, and how far their upgrade is."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicy, NVIDIADriver
from gpu_control_plane.console.page import Fragment, Page, needs
from gpu_control_plane.console.pages.per_fleet import fleet_of, per_fleet
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.views.upgrades import upgrade_progress

_MOST_NODES: Final = 50
_progress = per_fleet(upgrade_progress)


async def show(request: Request) -> Response:
    return page_response(request, "stack.html", **await _context(request))


async def _state(request: Request) -> str:
    return render(request, "stack_state.html", **await _context(request))


async def _context(request: Request) -> dict[str, Any]:
    fleet = await fleet_of(request)
    viewer = request.state.viewer
    policies = list(request.app.state.caches.policies) if await viewer.may("list", ClusterPolicy) else []
    drivers = list(request.app.state.caches.drivers) if await viewer.may("list", NVIDIADriver) else []
    progress = _progress(fleet)
    return {
        "fleet": fleet,
        "policies": sorted(policies, key=lambda policy: policy.name),
        "drivers": sorted(drivers, key=lambda driver: driver.name),
        "progress": progress,
        "nodes": progress.nodes[:_MOST_NODES],
        "without_driver": sum(state.status.driver is None for state in fleet.states.values()),
        "most": _MOST_NODES,
    }


PAGES: Final = (
    Page(
        path="/stack",
        show=show,
        needs=(needs("list", GPUNodeState),),
        live=(Fragment(target="state", kinds=(ClusterPolicy, NVIDIADriver, GPUNodeState, Node), render=_state),),
    ),
)
