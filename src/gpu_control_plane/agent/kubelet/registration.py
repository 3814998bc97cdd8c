"""Registers a device plugin with the kubelet: the name of a resource, and the socket that serves it."""

from pathlib import Path
from typing import Final

import grpc

from gpu_control_plane.agent.kubelet.protocol import deviceplugin_pb2 as wire
from gpu_control_plane.agent.kubelet.sockets import open_channel

METHOD: Final = "/v1beta1.Registration/Register"
VERSION: Final = "v1beta1"

_TIMEOUT_SECONDS: Final = 20.0
"""The kubelet connects to the plugin before it answers, and takes up to ten seconds for that."""


class NotRegistered(Exception):
    """The kubelet refused, or did not answer."""


async def register(kubelet: Path, resource: str, endpoint: str) -> None:
    """Register a resource whose socket is listening already; raises NotRegistered."""
    request = wire.RegisterRequest(
        version=VERSION,
        endpoint=endpoint,
        resource_name=resource,
        options=wire.DevicePluginOptions(get_preferred_allocation_available=True),
    )
    async with open_channel(f"unix://{kubelet}") as channel:
        call = channel.unary_unary(METHOD, wire.RegisterRequest.SerializeToString, wire.Empty.FromString)
        try:
            await call(request, timeout=_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise NotRegistered(f"{error.code().name}: {error.details()}") from error
