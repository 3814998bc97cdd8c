"""The software stack: its states as a pipeline, the versions of drivers, and how far their upgrade is."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicy, NVIDIADriver
from gpu_control_plane.api.nvidia.upgradepolicy import DriverUpgradePolicy, UpgradePolicy
from gpu_control_plane.console.audit import describe_action
from gpu_control_plane.console.page import POST, Fragment, Page, needs
from gpu_control_plane.console.pages.per_fleet import fleet_of, per_fleet
from gpu_control_plane.console.pages.permission import permission
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.operator.upgrade_pause import read_policies, set_paused
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
    automatic = [policy for each in (*policies, *drivers) if (policy := _upgrade_policy(each)) and policy.auto_upgrade]
    return {
        "fleet": fleet,
        "automatic": bool(automatic),
        "paused": bool(automatic) and all(policy.paused for policy in automatic),
        "may_pause": await permission(request, "patch", ClusterPolicy),
        "policies": sorted(policies, key=lambda policy: policy.name),
        "drivers": sorted(drivers, key=lambda driver: driver.name),
        "progress": progress,
        "nodes": progress.nodes[:_MOST_NODES],
        "without_driver": sum(state.status.driver is None for state in fleet.states.values()),
        "most": _MOST_NODES,
    }


def _upgrade_policy(each: ClusterPolicy | NVIDIADriver) -> UpgradePolicy | DriverUpgradePolicy | None:
    return each.spec.driver.upgrade_policy if isinstance(each, ClusterPolicy) else each.spec.upgrade_policy


async def pause(request: Request) -> Response:
    return await _set_paused(request, paused=True)


async def resume(request: Request) -> Response:
    return await _set_paused(request, paused=False)


async def _set_paused(request: Request, *, paused: bool) -> Response:
    """As the person: no further node begins, or the next one may."""
    client = request.state.viewer.client
    changed = await set_paused(client, await read_policies(client), paused=paused)
    describe_action(request, objects=changed, command=f"kubectl gpu upgrade {'pause' if paused else 'resume'}")
    return RedirectResponse("/stack", 303)


_PATCH: Final = (needs("patch", ClusterPolicy),)

PAGES: Final = (
    Page(path="/stack/pause", show=pause, methods=POST, needs=_PATCH),
    Page(path="/stack/resume", show=resume, methods=POST, needs=_PATCH),
    Page(
        path="/stack",
        show=show,
        needs=(needs("list", GPUNodeState),),
        live=(Fragment(target="state", kinds=(ClusterPolicy, NVIDIADriver, GPUNodeState, Node), render=_state),),
    ),
)
