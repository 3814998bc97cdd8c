"""The kubelet's part of the conversation, over real sockets: it registers plugins, dials back and listens.

It behaves as kubelet 1.36 does, the awkward part included: when the stream of a resource ends, whichever connection
the resource has at that moment is closed.
"""

import asyncio
import contextlib
import tempfile
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc

from gpu_control_plane.agent.kubelet.interface import Allocator, ContainerAllocation, Device
from gpu_control_plane.agent.kubelet.metrics import PluginMetrics
from gpu_control_plane.agent.kubelet.plugins import DevicePlugins
from gpu_control_plane.agent.kubelet.protocol import deviceplugin_pb2 as wire
from gpu_control_plane.kube.backoff import Backoff
from waiting import until

RESOURCE = "gpu.deckhouse.io/training"
QUICK = Backoff(first=0.02, most=0.1)

type Listed = dict[str, str]
"""What the kubelet knows of a resource: health by device."""


class FakeAllocator:
    """Gives what is asked for, by name."""

    async def allocate(self, resource: str, ids: tuple[str, ...]) -> ContainerAllocation:
        return ContainerAllocation(
            cdi_devices=tuple(f"test/gpu={device}" for device in ids), envs={"RESOURCE": resource}
        )

    def prefer(self, resource: str, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        return available[-size:] if not required else available[:size]


def devices(*ids: str, unhealthy: Iterable[str] = ()) -> list[Device]:
    return [Device(name, name not in unhealthy) for name in (*ids, *unhealthy)]


def sockets(folder: Path) -> list[str]:
    """The sockets of agents, by name."""
    return sorted(path.name for path in folder.glob("gpu-agent-*.sock"))


@contextlib.asynccontextmanager
async def serving(plugins: DevicePlugins) -> AsyncIterator[asyncio.Task[None]]:
    """The agent, running."""
    task = asyncio.create_task(plugins.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Plugin:
    """A connection to one plugin, for calls of all kinds."""

    def __init__(self, path: Path, *, eager: bool = True) -> None:
        """One that is not eager takes in nothing ahead of being read."""
        self.path = path
        self.channel = grpc.aio.insecure_channel(f"unix://{path}", (("grpc.http2.bdp_probe", int(eager)),))

    async def raw(self, method: str, payload: bytes) -> bytes:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(
            f"/v1beta1.DevicePlugin/{method}"
        )
        return await call(payload, timeout=10)

    async def options(self) -> wire.DevicePluginOptions:
        return wire.DevicePluginOptions.FromString(await self.raw("GetDevicePluginOptions", b""))

    async def allocate(self, *containers: Sequence[str]) -> wire.AllocateResponse:
        request = wire.AllocateRequest(
            container_requests=(wire.ContainerAllocateRequest(devices_ids=ids) for ids in containers)
        )
        return wire.AllocateResponse.FromString(await self.raw("Allocate", request.SerializeToString()))

    async def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> list[str]:
        request = wire.PreferredAllocationRequest(
            container_requests=(
                wire.ContainerPreferredAllocationRequest(
                    available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
                ),
            )
        )
        answer = wire.PreferredAllocationResponse.FromString(
            await self.raw("GetPreferredAllocation", request.SerializeToString())
        )
        return list(answer.container_responses[0].deviceIDs)

    async def listen(self) -> AsyncIterator[wire.ListAndWatchResponse]:
        call: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self.channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch"
        )
        async for answer in call(b""):
            yield wire.ListAndWatchResponse.FromString(answer)


@contextlib.asynccontextmanager
async def plugin(
    allocator: Allocator, listed: Sequence[Device], metrics: PluginMetrics | None = None, limit: float = 10.0
) -> AsyncIterator[Plugin]:
    """The agent serving one resource, and a connection to it."""
    with tempfile.TemporaryDirectory(prefix="dp-") as name:
        folder = Path(name)
        agent = DevicePlugins(allocator, folder, metrics=metrics, allocate_limit=limit)
        await agent.advertise(RESOURCE, listed)
        async with serving(agent):
            await until(lambda: sockets(folder))
            connection = Plugin(folder / sockets(folder)[0])
            try:
                yield connection
            finally:
                await connection.channel.close()


class FakeKubelet:
    """A kubelet that can be started, killed and started again in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refusals: deque[str] = deque()
        """Answers to the next registrations."""
        self.listens = True
        """Whether it opens a stream after a registration."""
        self.drops = False
        """Whether it closes the stream after the first list."""
        self.hasty = False
        """Whether it reads the whole stream before it answers the registration."""
        self.answering = asyncio.Event()
        """Cleared, it lets registrations wait for their answer."""
        self.answering.set()
        self.registered: list[wire.RegisterRequest] = []
        self.history: dict[str, list[Listed]] = defaultdict(list)
        self.plugins: dict[str, Plugin] = {}
        self._streams: set[asyncio.Task[None]] = set()
        self._server: grpc.aio.Server | None = None

    def known(self, resource: str = RESOURCE) -> Listed | None:
        return self.history[resource][-1] if self.history[resource] else None

    @property
    def listening(self) -> bool:
        """Whether any stream is open."""
        return bool(self._streams)

    def clean(self) -> None:
        """Delete every socket, as kubelets do before anything else."""
        for path in self.folder.iterdir():
            if path.is_socket():
                path.unlink()

    async def start(self, *, clean: bool = True) -> None:
        """Listen for registrations."""
        if clean:
            self.clean()
        self.history.clear()
        self.registered.clear()
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        handler = grpc.unary_unary_rpc_method_handler(
            self._register, wire.RegisterRequest.FromString, wire.Empty.SerializeToString
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": handler}),)
        )
        self._server.add_insecure_port(f"unix://{self.folder}/kubelet.sock")
        await self._server.start()

    async def kill(self) -> None:
        """Die with all connections."""
        for task in self._streams:
            task.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        for plugin in self.plugins.values():
            await plugin.channel.close()
        self.plugins.clear()
        if self._server:
            await self._server.stop(None)
        self._server = None

    async def hang_up(self, resource: str = RESOURCE) -> None:
        """Close the connection of a resource, as when its former plugin ended."""
        await self.plugins.pop(resource).channel.close()

    async def _register(self, request: wire.RegisterRequest, context: grpc.aio.ServicerContext[Any, Any]) -> wire.Empty:
        if self.refusals:
            await context.abort(grpc.StatusCode.UNKNOWN, self.refusals.popleft())
        plugin = Plugin(self.folder / request.endpoint)
        await plugin.options()
        await self.answering.wait()
        self.registered.append(request)
        self.plugins[request.resource_name] = plugin
        if self.listens:
            task = asyncio.create_task(self._listen(request.resource_name, plugin))
            self._streams.add(task)
            task.add_done_callback(self._streams.discard)
            if self.hasty:
                await asyncio.wait((task,))
        return wire.Empty()

    async def _listen(self, resource: str, plugin: Plugin) -> None:
        try:
            async for answer in plugin.listen():
                self.history[resource].append({device.ID: device.health for device in answer.devices})
                if self.drops:
                    break
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass
        await plugin.channel.close()
        if current := self.plugins.pop(resource, None):
            await current.channel.close()
