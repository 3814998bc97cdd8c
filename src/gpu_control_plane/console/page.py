"""What a page is: a path, a function, the right it needs, and the parts of it that change by themselves."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gpu_control_plane.kube.access_review import Right
from gpu_control_plane.kube.objects import Object

Show = Callable[[Request], Awaitable[Response]]
Needs = Callable[[Request], Right]

GET: Final = ("GET",)
POST: Final = ("POST",)


class Fragment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a page that is sent again when objects of some kinds have changed and it reads differently."""

    target: str
    """The id of the element whose content it is."""
    kinds: tuple[type[Object], ...]
    """Kinds of the console's caches; a change of any of their objects may change this part."""
    render: Callable[[Request], Awaitable[str]]
    """Its HTML, or the data of `event`. The request has the path, the query and the viewer of the page."""
    shared: bool = False
    """Whether all who see the same fleet under the same URL in the same language see the same: then it is rendered
    once for all of them. Nothing in it may depend on the viewer otherwise."""
    swap: str = "innerMorph"
    """How the browser puts it in place. Morphing keeps the focus and what was typed."""
    event: str | None = None
    """Send the result as the data of this DOM event, for a script, instead of swapping HTML."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table of pages."""

    path: str
    """As Starlette writes it: `/nodes/{name}`."""
    show: Show
    methods: tuple[str, ...] = GET
    needs: tuple[Needs, ...] = ()
    """Rights without which the page is refused. What a page shows is filtered by rights in any case."""
    live: tuple[Fragment, ...] = ()


def needs(
    verb: str, what: type[Object] | str, *, namespace_from: str | None = None, name_from: str | None = None
) -> Needs:
    """A right, in the namespace and for the name that are parts of the page's path."""

    def right(request: Request) -> Right:
        namespace = request.path_params[namespace_from] if namespace_from is not None else None
        name = request.path_params[name_from] if name_from is not None else ""
        return Right.of(verb, what, namespace=namespace, name=name)

    return right
