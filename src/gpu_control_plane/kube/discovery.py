"""Whether an API server serves a kind, by what it says of itself.

Everybody may ask, whatever else they may do. The answer is what counts: that a CRD is Established is written a moment
before the server acts on it, and a list in between finds no such kind.
"""

import msgspec

from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.objects import Resource
from gpu_control_plane.kube.transport import Call


class Served(msgspec.Struct, frozen=True):
    name: str


class ServedResources(msgspec.Struct, frozen=True):
    resources: tuple[Served, ...] = ()


_DECODER = msgspec.json.Decoder(ServedResources)


async def serves(client: Client, resource: Resource) -> bool:
    """Whether the server that answers knows this kind in this version."""
    path = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.api_version}"
    call = Call(method="GET", path=path, verb="get", resource="discovery")
    try:
        found = _DECODER.decode(await client.transport.send(call))
    except NotFound:
        return False
    return any(held.name == resource.plural for held in found.resources)
