"""The overview: what there is."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.console.page import Fragment, Page
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.views.fleet import Fleet


async def show(request: Request) -> Response:
    fleet: Fleet = await request.app.state.fleet(request.state.viewer)
    return page_response(request, "overview.html", fleet=fleet)


async def counts(request: Request) -> str:
    fleet: Fleet = await request.app.state.fleet(request.state.viewer)
    return render(request, "counts.html", fleet=fleet)


PAGES: Final = (
    Page(
        path="/",
        show=show,
        live=(Fragment(target="counts", kinds=(GPUDevice, GPUNodeState, GPUPool), render=counts, shared=True),),
    ),
)
