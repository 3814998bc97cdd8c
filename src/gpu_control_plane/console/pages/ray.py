"""Ray clusters, jobs and services. The menu has this page where the kinds of Ray are installed."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.api.ray.view import RayClusterView, RayJobView, RayServiceView
from gpu_control_plane.console.page import Fragment, Page
from gpu_control_plane.console.pages.per_fleet import fleet_of
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.views.ray import job_rows, ray_rows, service_rows


async def show(request: Request) -> Response:
    return page_response(request, "ray.html", **await _context(request))


async def _rows(request: Request) -> str:
    return render(request, "ray_rows.html", **await _context(request))


async def _context(request: Request) -> dict[str, Any]:
    """What there is of Ray in the namespaces in which the person may list it."""
    caches = request.app.state.caches
    clusters, hidden = await _visible(request, RayClusterView, caches.rays)
    jobs, more = await _visible(request, RayJobView, caches.ray_jobs)
    services, most = await _visible(request, RayServiceView, caches.ray_services)
    fleet = await fleet_of(request)
    rows = ray_rows(fleet, clusters)
    return {
        "fleet": fleet,
        "rows": rows,
        "users": [*job_rows(jobs, rows), *service_rows(services, rows)],
        "hidden": max(hidden, more, most),
        "installed": caches.rays.is_synced,
    }


async def _visible[T: Object](request: Request, kind: type[T], cache: Cache[T]) -> tuple[list[T], int]:
    """The objects that the person may list, and in how many namespaces there are others."""
    namespaces = {each.metadata.namespace or "" for each in cache}
    visible = await request.state.viewer.namespaces_with("list", kind, namespaces)
    return [each for each in cache if (each.metadata.namespace or "") in visible], len(namespaces - visible)


PAGES: Final = (
    Page(
        path="/ray",
        show=show,
        live=(
            Fragment(
                target="ray", kinds=(RayClusterView, RayJobView, RayServiceView, GPUDevice, WaitingPod), render=_rows
            ),
        ),
    ),
)
