"""Settings: who am I, what may I do, and how does it look."""

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import StoredClusterPolicy
from gpu_control_plane.console.origin import local_path
from gpu_control_plane.console.page import POST, Page
from gpu_control_plane.console.pages.permission import permission
from gpu_control_plane.console.rendering import page_response
from gpu_control_plane.console.texts import LANGUAGE_COOKIE, LANGUAGES, THEME_COOKIE, THEMES

_YEAR: Final = 365 * 24 * 3600
_RIGHTS: Final = (
    ("see_cards", "list", GPUDevice),
    ("see_nodes", "list", GPUNodeState),
    ("see_pools", "list", GPUPool),
    ("see_machines", "list", Node),
    ("see_pods", "list", "pods"),
    ("approve", "patch", GPUDevice),
    ("change_pools", "patch", GPUPool),
    ("pause", "patch", StoredClusterPolicy),
)


async def show(request: Request) -> Response:
    rights = [(name, await permission(request, verb, what)) for name, verb, what in _RIGHTS]
    return page_response(request, "settings.html", rights=rights)


async def set_appearance(request: Request) -> Response:
    """Remember language and theme in cookies of this browser; nothing else is stored."""
    async with request.form(max_files=0, max_fields=4, max_part_size=2048) as form:
        back, theme, language = (form.get(name) for name in ("back", "theme", "language"))
    response = RedirectResponse(local_path(back if isinstance(back, str) else None), 303)
    secure = request.url.scheme == "https"
    for cookie, value, known in ((THEME_COOKIE, theme, THEMES), (LANGUAGE_COOKIE, language, LANGUAGES)):
        if isinstance(value, str) and value in known:
            response.set_cookie(cookie, value, max_age=_YEAR, samesite="lax", httponly=True, secure=secure)
    return response


PAGES: Final = (
    Page(path="/settings", show=show),
    Page(path="/settings/appearance", show=set_appearance, methods=POST),
)
