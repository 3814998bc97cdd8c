"""A kubelet with no pods, over real sockets: it takes plugins in and answers what nobody holds."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from gpu_control_plane.agent.kubelet.podresources import SERVICE
from gpu_control_plane.agent.kubelet.protocol import podresources_pb2 as wire
from unit.agent.kubelet.kubelet import Kubelet


@asynccontextmanager
async def quiet_kubelet() -> AsyncIterator[Path]:
    """It runs inside; the path is its folder, which is short, since sockets cannot have long names."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as path:
        folder = Path(path)
        for part in ("device-plugins", "pod-resources"):
            (folder / part).mkdir()
        kubelet, books = Kubelet(folder / "device-plugins"), _books(folder / "pod-resources/kubelet.sock")
        await kubelet.start()
        await books.start()
        try:
            yield folder
        finally:
            await books.stop(None)
            await kubelet.kill()


def _books(socket: Path) -> grpc.aio.Server:
    async def nothing_held(_raw: bytes, _context: object) -> wire.ListPodResourcesResponse:
        return wire.ListPodResourcesResponse()

    async def nothing_allocatable(_raw: bytes, _context: object) -> wire.AllocatableResourcesResponse:
        return wire.AllocatableResourcesResponse()

    answer = grpc.unary_unary_rpc_method_handler
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "List": answer(nothing_held, None, wire.ListPodResourcesResponse.SerializeToString),
        "GetAllocatableResources": answer(
            nothing_allocatable, None, wire.AllocatableResourcesResponse.SerializeToString
        ),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"unix://{socket}")
    return server
