"""Events of our controllers: what changed, and when."""

from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.console.page import Fragment, Page
from gpu_control_plane.console.pages.listing import make_listing
from gpu_control_plane.console.rendering import page_response, render
from gpu_control_plane.kube.events import Event

_OF_CLUSTER: Final = "default"
"""Where Kubernetes has Events about objects without a namespace."""
_PATHS: Final = {
    "GPUDevice": "/cards/{name}",
    "GPUNodeState": "/nodes/{name}",
    "Node": "/nodes/{name}",
    "GPUPool": "/pools/{name}",
    "Pod": "/pods/{namespace}/{name}",
}


def is_believed(event: Event, own: str) -> bool:
    """Whether only our processes, or those who may write in the same place, can have told it.

    Whoever may write Events in a namespace may put our name on them. Ours are about pods, in the pod's namespace, or
    about objects without a namespace and about ourselves: those are in two namespaces that are not for tenants, the
    second of which is our `own`.
    """
    about = event.regarding
    if about is None:
        return False
    return about.kind == "Pod" or event.metadata.namespace in {_OF_CLUSTER, own}


async def show(request: Request) -> Response:
    return page_response(request, "events.html", **await _context(request))


async def _rows(request: Request) -> str:
    return render(request, "events_rows.html", **await _context(request))


async def _context(request: Request) -> dict[str, Any]:
    """The Events of the namespaces in which the person may list Events."""
    own, caches = request.app.state.settings.namespace, request.app.state.caches.events
    events = [event for cache in caches for event in cache if is_believed(event, own)]
    namespaces = {event.metadata.namespace or "" for event in events}
    visible = await request.state.viewer.namespaces_with("list", Event, namespaces)
    kind = request.query_params.get("type", "")
    reason = request.query_params.get("reason", "")
    seen = [event for event in events if (event.metadata.namespace or "") in visible]
    listing = make_listing(
        request,
        [event for event in seen if kind in {"", event.type} and reason in {"", event.reason}],
        sorts={
            "when": lambda event: event.seen_at,
            "reason": lambda event: (event.reason, event.seen_at),
            "object": lambda event: (event.regarding.name if event.regarding is not None else "", event.seen_at),
        },
        default="-when",
        words=lambda event: (
            event.reason,
            event.note,
            event.regarding.kind if event.regarding is not None else None,
            event.regarding.name if event.regarding is not None else None,
            event.regarding.namespace if event.regarding is not None else None,
        ),
    )
    return {
        "listing": listing,
        "rows": [(event, _path(event)) for event in listing.rows],
        "reasons": [(name, name) for name in sorted({event.reason for event in seen})],
        "types": [(name, name) for name in sorted({event.type for event in seen})],
        "hidden": len(events) - len(seen),
        "type": kind,
        "reason": reason,
    }


def _path(event: Event) -> str:
    """The page of what the Event is about, if there is one."""
    about = event.regarding
    if about is None or about.kind not in _PATHS:
        return ""
    return _PATHS[about.kind].format(name=quote(about.name, safe=""), namespace=quote(about.namespace or "", safe=""))


PAGES: Final = (Page(path="/events", show=show, live=(Fragment(target="events", kinds=(Event,), render=_rows),)),)
