"""The software stack: its states as a pipeline, the versions of drivers, and how far their upgrade is."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.console.audit import describe_action
from gpu_control_plane.console.page import POST, Fragment, Page, needs
from gpu_control_plane.console.pages.per_fleet import fleet_of, per_fleet
from gpu_control_plane.console.pages.permission import permission
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.operator.upgrade_pause import set_paused, upgrade_settings
from gpu_control_plane.views.upgrades import upgrade_progress

_MOST_NODES: Final = 50
_progress = per_fleet(upgrade_progress)


async def show(request: Request) -> Response:
    return page_response(request, "stack.html", **await _context(request))


async def _state(request: Request) -> str:
    return render(request, "stack_state.html", **await _context(request))


async def _context(request: Request) -> dict[str, Any]:
    fleet = await fleet_of(request)
    policies, drivers = await _policies(request)
    progress = _progress(fleet)
    automatic = [setting for setting in upgrade_settings((*policies, *drivers)) if setting.automatic]
    return {
        "fleet": fleet,
        "automatic": bool(automatic),
        "paused": bool(automatic) and all(setting.paused for setting in automatic),
        "may_pause": await permission(request, "patch", StoredClusterPolicy),
        "policies": sorted(policies, key=lambda policy: policy.name),
        "drivers": sorted(drivers, key=lambda driver: driver.name),
        "progress": progress,
        "nodes": progress.nodes[:_MOST_NODES],
        "without_driver": sum(state.status.driver is None for state in fleet.states.values()),
        "most": _MOST_NODES,
    }


async def _policies(request: Request) -> tuple[list[StoredClusterPolicy], list[StoredNVIDIADriver]]:
    """Those that the person may see."""
    viewer, caches = request.state.viewer, request.app.state.caches
    policies = list(caches.policies) if await viewer.may("list", StoredClusterPolicy) else []
    drivers = list(caches.drivers) if await viewer.may("list", StoredNVIDIADriver) else []
    return policies, drivers


async def pause(request: Request) -> Response:
    return await _set_paused(request, paused=True)


async def resume(request: Request) -> Response:
    return await _set_paused(request, paused=False)


async def _set_paused(request: Request, *, paused: bool) -> Response:
    """As the person: no further node begins, or the next one may."""
    policies, drivers = await _policies(request)
    changed = await set_paused(request.state.viewer.client, (*policies, *drivers), paused=paused)
    describe_action(request, objects=changed, command=f"kubectl gpu upgrade {'pause' if paused else 'resume'}")
    return RedirectResponse("/stack", 303)


_PATCH: Final = (needs("patch", StoredClusterPolicy),)

PAGES: Final = (
    Page(path="/stack/pause", show=pause, methods=POST, needs=_PATCH),
    Page(path="/stack/resume", show=resume, methods=POST, needs=_PATCH),
    Page(
        path="/stack",
        show=show,
        needs=(needs("list", GPUNodeState),),
        live=(
            Fragment(
                target="state", kinds=(StoredClusterPolicy, StoredNVIDIADriver, GPUNodeState, Node), render=_state
            ),
        ),
    ),
)
