"""Whether a request was made by our own pages. Browsers say so in headers that no script can set.

`Sec-Fetch-Site` is sent over HTTPS and to loopback; where it is absent, `Origin` decides. A program that brings its
token sends neither, and needs none: another site cannot make a browser send that token.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from gpu_control_plane.console.errors import BadRequest, ForeignOrigin

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


def is_unsafe(method: str) -> bool:
    """Whether a request may change something."""
    return method not in _SAFE_METHODS


def check_host(host: str, public_url: str | None, *, loopback: bool) -> None:
    """Refuse a request under a name that is not ours: a page of somebody else could have been led here by DNS."""
    if public_url is not None:
        if host.lower() != urlsplit(public_url).netloc.lower():
            raise BadRequest(f"This console is at {public_url}.")
    elif loopback and _without_port(host) not in _LOOPBACK_HOSTS:
        raise BadRequest("This console is for this machine only: open it as 127.0.0.1 or localhost.")


def check_origin(method: str, headers: Mapping[str, str], own_origin: str, *, with_cookie: bool) -> None:
    """Refuse what another site asks for. `with_cookie` says that the browser signs the request in by itself."""
    site = headers.get("sec-fetch-site")
    if not is_unsafe(method):
        if site in (None, "same-origin", "none") or _is_navigation(headers):
            return
        raise ForeignOrigin("Another site asked for this. Open it from the console itself.")
    if site is not None:
        if site != "same-origin":
            raise ForeignOrigin("Another site asked for this change. Make it in the console itself.")
        return
    origin = headers.get("origin")
    if origin is None and not with_cookie:
        return
    if origin != own_origin:
        raise ForeignOrigin("This change was not asked for by the console itself.")


def local_path(wanted: str | None) -> str:
    """Where to go after a sign-in: a path of ours, whatever a link says."""
    if not wanted or not wanted.startswith("/") or wanted.startswith(("//", "/\\")):
        return "/"
    parts = urlsplit(wanted)
    clean = not parts.scheme and not parts.netloc and wanted.isprintable() and "\\" not in wanted
    return wanted if clean else "/"


def _is_navigation(headers: Mapping[str, str]) -> bool:
    """Whether a person followed a link here: what they see stays in their own window."""
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()
