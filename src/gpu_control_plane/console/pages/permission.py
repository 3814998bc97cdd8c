"""Whether a person may do something, as a button shows it: an action that one may not do is disabled and names the
right that is missing."""

import msgspec
from starlette.requests import Request

from gpu_control_plane.kube.access_review import Right
from gpu_control_plane.kube.objects import Object


class Permission(msgspec.Struct, frozen=True):
    held: bool
    text: str
    """The right, as `patch gpudevices.gpu.deckhouse.io`."""


async def permission(request: Request, verb: str, what: type[Object] | str) -> Permission:
    right = Right.of(verb, what)
    return Permission(await request.state.viewer.has(right), str(right))
