"""A kubelet with its books, over real sockets: it lists what plugins tell it of, and can be asked who holds what."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from gpu_control_plane.agent.kubelet.checkpoint import FILE_NAME
from gpu_control_plane.agent.kubelet.podresources import SERVICE
from gpu_control_plane.agent.kubelet.protocol import podresources_pb2 as wire
from unit.agent.kubelet.kubelet import FakeKubelet


class KubeletAndBooks:
    """No pod runs on its node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plugins = FakeKubelet(folder / "device-plugins")
        self.away = False
        """Whether nobody may look into the books."""
        self.refused = 0
        """How often somebody wanted to, all the same."""

    def lists(self, resource: str) -> set[str]:
        """The devices of a resource that it takes for healthy."""
        return {name for name, health in (self.plugins.known(resource) or {}).items() if health == "Healthy"}

    async def list(self, _raw: bytes, context: "grpc.aio.ServicerContext[Any, Any]") -> wire.ListPodResourcesResponse:
        if self.away:
            self.refused += 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        return wire.ListPodResourcesResponse()

    async def allocatable(self, _raw: bytes, _context: object) -> wire.AllocatableResourcesResponse:
        listed = {resource: self.lists(resource) for resource in [*self.plugins.history]}
        devices = (
            wire.ContainerDevices(resource_name=resource, device_ids=sorted(ids)) for resource, ids in listed.items()
        )
        return wire.AllocatableResourcesResponse(devices=devices)


def write_empty_checkpoint(device_plugins: Path) -> None:
    """As a kubelet has it that has been told of devices and given none away."""
    (device_plugins / FILE_NAME).write_text('{"Data": {"PodDeviceEntries": null}}')


@asynccontextmanager
async def kubelet_and_books() -> AsyncIterator[KubeletAndBooks]:
    """It runs inside. Its folder is short, since sockets cannot have long names."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as path:
        folder = Path(path)
        for part in ("device-plugins", "pod-resources"):
            (folder / part).mkdir()
        write_empty_checkpoint(folder / "device-plugins")
        kubelet = KubeletAndBooks(folder)
        answer = grpc.unary_unary_rpc_method_handler
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "List": answer(kubelet.list, None, wire.ListPodResourcesResponse.SerializeToString),
            "GetAllocatableResources": answer(
                kubelet.allocatable, None, wire.AllocatableResourcesResponse.SerializeToString
            ),
        }
        books = grpc.aio.server()
        books.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        books.add_insecure_port(f"unix://{folder}/pod-resources/kubelet.sock")
        await kubelet.plugins.start()
        await books.start()
        try:
            yield kubelet
        finally:
            await books.stop(None)
            await kubelet.plugins.kill()
