"""The one call the agent makes to the kubelet's device manager: here is a resource, and here is its socket."""

from pathlib import Path
from typing import Final

import grpc

from gpu_control_plane.agent.kubelet.protocol import deviceplugin_pb2 as wire
from gpu_control_plane.agent.kubelet.sockets import open_channel

METHOD: Final = "/v1beta1.Registration/Register"
VERSION: Final = "v1beta1"

_TIME_LIMIT: Final = 20.0
"""Seconds; the kubelet dials back before it answers, and gives itself ten."""


class NotRegistered(Exception):
    """The kubelet refused, or did not answer."""


async def register(kubelet: Path, resource: str, endpoint: str) -> None:
    """Tell the kubelet about a resource. Its socket must be listening already. Raises NotRegistered."""
    request = wire.RegisterRequest(
        version=VERSION,
        endpoint=endpoint,
        resource_name=resource,
        options=wire.DevicePluginOptions(get_preferred_allocation_available=True),
    )
    async with open_channel(f"unix://{kubelet}") as channel:
        call = channel.unary_unary(METHOD, wire.RegisterRequest.SerializeToString, wire.Empty.FromString)
        try:
            await call(request, timeout=_TIME_LIMIT)
        except grpc.aio.AioRpcError as error:
            raise NotRegistered(f"{error.code().name}: {error.details()}") from error
