"""Ray clusters. The menu has this page where KubeRay is installed."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.api.ray.view import RayClusterView
from gpu_control_plane.console.page import Fragment, Page
from gpu_control_plane.console.pages.per_fleet import fleet_of
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.views.ray import ray_rows


async def show(request: Request) -> Response:
    return page_response(request, "ray.html", **await _context(request))


async def _rows(request: Request) -> str:
    return render(request, "ray_rows.html", **await _context(request))


async def _context(request: Request) -> dict[str, Any]:
    """The Ray clusters of the namespaces in which the person may list them."""
    cache = request.app.state.caches.rays
    found = list(cache)
    namespaces = {each.metadata.namespace or "" for each in found}
    visible = await request.state.viewer.namespaces_with("list", RayClusterView, namespaces)
    fleet = await fleet_of(request)
    return {
        "fleet": fleet,
        "rows": ray_rows(fleet, [each for each in found if (each.metadata.namespace or "") in visible]),
        "hidden": len(namespaces - visible),
        "installed": cache.is_synced,
    }


PAGES: Final = (
    Page(
        path="/ray",
        show=show,
        live=(Fragment(target="ray", kinds=(RayClusterView, GPUDevice, WaitingPod), render=_rows),),
    ),
)
