"""Templates become HTML: everything that is filled in is escaped, and a name that is not given is an error."""

from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from gpu_control_plane.console.frame import frame_context
from gpu_control_plane.console.static_files import StaticFiles

FOLDER: Final = Path(__file__).parent / "templates"


def make_environment(static: StaticFiles) -> Environment:
    """The one environment. Templates call `static('css/site.css')` for the URL of a file, and `stream_url(request)`."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals["static"] = static.url
    environment.globals["stream_url"] = stream_url
    return environment


def stream_url(request: Request) -> str:
    """Where an open page follows its changes: the stream of this path with this query."""
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"/stream?{urlencode({'page': here})}"


def render(request: Request, template: str, **context: Any) -> str:
    """The HTML of a template. Every template knows `request`, `viewer`, who is None before a sign-in, and the frame."""
    environment: Environment = request.app.state.templates
    viewer = getattr(request.state, "viewer", None)
    return environment.get_template(template).render(
        request=request, viewer=viewer, **frame_context(request), **context
    )


def page_response(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """A whole page."""
    return HTMLResponse(render(request, template, **context), status_code=status)
