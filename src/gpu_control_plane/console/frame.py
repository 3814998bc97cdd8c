"""What surrounds every page: the menu, who is signed in, language and theme."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from starlette.requests import Request

from gpu_control_plane.console.texts import LANGUAGES, THEMES, texts_for, theme_of


class MenuEntry(msgspec.Struct, frozen=True):
    name: str
    """Its text is `menu.<name>`."""
    path: str
    here: bool = False


RAY: Final = MenuEntry("ray", "/ray")
"""Only where KubeRay is installed."""
MENU: Final = (
    MenuEntry("overview", "/"),
    MenuEntry("approvals", "/approvals"),
    MenuEntry("pools", "/pools"),
    MenuEntry("nodes", "/nodes"),
    MenuEntry("cards", "/cards"),
    MenuEntry("workloads", "/workloads"),
    RAY,
    MenuEntry("stack", "/stack"),
    MenuEntry("events", "/events"),
    MenuEntry("settings", "/settings"),
)
_BELOW: Final = {"/pods": "/workloads", "/usage": "/workloads"}
"""Pages whose place in the menu is another's."""


def frame_context(request: Request) -> dict[str, Any]:
    """The names that every template knows beside `request` and `viewer`."""
    path = request.url.path
    return {
        "t": texts_for(request),
        "theme": theme_of(request),
        "themes": THEMES,
        "languages": LANGUAGES,
        "menu": [
            msgspec.structs.replace(entry, here=_is_here(entry.path, path))
            for entry in MENU
            if entry is not RAY or _has_ray(request)
        ],
        "stacked": stacked,
        "here": path + (f"?{request.url.query}" if request.url.query else ""),
    }


def stacked(parts: Iterable[tuple[str, int]], total: int) -> list[tuple[str, float, float]]:
    """Where each part of a bar begins and how wide it is, in percent of the whole."""
    found = []
    start = 0.0
    for name, count in parts:
        if count and total:
            width = 100 * count / total
            found.append((name, round(start, 3), round(width, 3)))
            start += width
    return found


def _is_here(entry: str, path: str) -> bool:
    top = "/" + path.strip("/").partition("/")[0]
    return _BELOW.get(top, top) == entry


def _has_ray(request: Request) -> bool:
    caches = getattr(request.app.state, "caches", None)
    return caches is not None and caches.rays.is_synced
