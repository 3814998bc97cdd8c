"""Whether an API server serves a kind, by its discovery document.

Discovery needs no rights. It is more exact than a CRD's condition: a CRD is marked Established a moment before the API
server serves it, and a list in between finds no such kind.
"""

import msgspec

from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.objects import Resource
from gpu_control_plane.kube.transport import Call


class _APIResource(msgspec.Struct, frozen=True):
    name: str


class _APIResourceList(msgspec.Struct, frozen=True):
    resources: tuple[_APIResource, ...] = ()


_DECODER = msgspec.json.Decoder(_APIResourceList)


async def serves(client: Client, resource: Resource) -> bool:
    """Whether the API server serves this kind in this version."""
    path = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.api_version}"
    call = Call(method="GET", path=path, verb="get", resource="discovery")
    try:
        found = _DECODER.decode(await client.transport.send(call))
    except NotFound:
        return False
    return any(held.name == resource.plural for held in found.resources)
