"""The DevicePlugin service of one resource on one socket: ListAndWatch, GetPreferredAllocation and Allocate.

A socket that is lost is replaced by a new endpoint with the same device list.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from gpu_control_plane.agent.kubelet.device_list import DeviceList
from gpu_control_plane.agent.kubelet.interface import AllocationRefused, Allocator, ContainerAllocation, PluginError
from gpu_control_plane.agent.kubelet.metrics import PluginMetrics
from gpu_control_plane.agent.kubelet.protocol import deviceplugin_pb2 as wire
from gpu_control_plane.agent.kubelet.sockets import OPTIONS, identity

SERVICE: Final = "v1beta1.DevicePlugin"

_MAX_ERROR_CHARACTERS: Final = 500
"""gRPC sends errors in HTTP/2 headers, which are refused when they are too long."""
_NAMED: Final = 3

_log = structlog.get_logger(component="agent.kubelet.endpoint")

type _Context = grpc.aio.ServicerContext[Any, Any]


class _Stream:
    """An open ListAndWatch stream, and the number of the last list that was sent on it."""

    def __init__(self) -> None:
        self.sent: int | None = None


class Endpoint:
    """Serves one resource on one socket, from `start` to `stop`."""

    def __init__(
        self,
        path: Path,
        device_list: DeviceList,
        allocator: Allocator,
        *,
        metrics: PluginMetrics,
        on_push: Callable[[], None],
        on_streams: Callable[[], None],
        time_limit: float,
    ) -> None:
        self.path = path
        self._streams: set[_Stream] = set()
        self._device_list = device_list
        self._allocator = allocator
        self._metrics = metrics
        self._on_push = on_push
        self._on_streams = on_streams
        self._time_limit = time_limit
        self._closing = False
        self._server = grpc.aio.server(options=OPTIONS)
        self._server.add_generic_rpc_handlers((self._handlers(),))

    async def start(self) -> None:
        try:
            self._server.add_insecure_port(f"unix://{self.path}")
        except RuntimeError as error:
            raise PluginError(f"cannot listen on {self.path}: is the folder there, and writable?") from error
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """End the streams, each after it has sent the current list, let calls finish, and remove the socket."""
        self._closing = True
        self._device_list.wake()
        await self._server.stop(grace)

    @property
    def present(self) -> bool:
        """Whether the kubelet could still find the socket."""
        return identity(self.path) is not None

    @property
    def streams(self) -> int:
        """Open ListAndWatch streams."""
        return len(self._streams)

    @property
    def list_sent(self) -> bool:
        """Whether there are open streams and the current list has been sent on all of them."""
        return bool(self._streams) and all(stream.sent == self._device_list.number for stream in self._streams)

    def _handlers(self) -> grpc.GenericRpcHandler:
        call = grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "GetDevicePluginOptions": call(self._options, None, wire.DevicePluginOptions.SerializeToString),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch),
                "GetPreferredAllocation": call(self._prefer, None, wire.PreferredAllocationResponse.SerializeToString),
                "Allocate": call(self._allocate, None, wire.AllocateResponse.SerializeToString),
            },
        )

    async def _options(self, _request: bytes, _context: _Context) -> wire.DevicePluginOptions:
        return wire.DevicePluginOptions(get_preferred_allocation_available=True)

    async def _list_and_watch(self, _request: bytes, context: _Context) -> None:
        """Send the list at once and whenever it changes. A kubelet that reads slowly skips to the newest one."""
        stream = _Stream()
        self._streams.add(stream)
        self._on_streams()
        try:
            while True:
                changed = self._device_list.changed
                number = self._device_list.number
                if stream.sent != number:
                    await context.write(self._device_list.payload)
                    stream.sent = number
                    self._on_push()
                elif self._closing:
                    return
                else:
                    await changed.wait()
        finally:
            self._streams.discard(stream)
            self._on_streams()

    async def _prefer(self, raw: bytes, context: _Context) -> wire.PreferredAllocationResponse:
        request = await _parsed(wire.PreferredAllocationRequest, raw, context)
        responses = (
            wire.ContainerPreferredAllocationResponse(
                deviceIDs=self._preferred(
                    container.available_deviceIDs, container.must_include_deviceIDs, container.allocation_size
                )
            )
            for container in request.container_requests
        )
        return wire.PreferredAllocationResponse(container_responses=responses)

    def _preferred(self, available: Iterable[str], required: Iterable[str], size: int) -> Sequence[str]:
        """The allocator's choice if it is valid, else any: this is advice, and an error would fail the pod."""
        must = [device for device in dict.fromkeys(required) if self._device_list.is_healthy(device)]
        may = [device for device in dict.fromkeys((*must, *available)) if self._device_list.is_healthy(device)]
        wanted = max(len(must), min(size, len(may)))
        try:
            chosen = list(
                dict.fromkeys(self._allocator.prefer(self._device_list.resource, tuple(may), tuple(must), wanted))
            )
        except Exception:  # noqa: BLE001 - a bug in the preference must not fail the pod
            _log.exception("preferred allocation failed; taking the first devices", resource=self._device_list.resource)
            return may[:wanted]
        if len(chosen) == wanted and set(must) <= set(chosen) <= set(may):
            return chosen
        _log.error("preferred allocation is invalid; taking the first devices", resource=self._device_list.resource)
        return may[:wanted]

    async def _allocate(self, raw: bytes, context: _Context) -> wire.AllocateResponse:
        request = await _parsed(wire.AllocateRequest, raw, context)
        resource = self._device_list.resource
        try:
            with self._metrics.allocate_seconds.labels(resource).time():
                async with asyncio.timeout(self._time_limit):
                    answers = await self._allocated(tuple(c.devices_ids) for c in request.container_requests)
        except AllocationRefused as refusal:
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
        except TimeoutError:
            why = f"the node agent did not decide about {resource} within {self._time_limit:g} s"
            await self._refuse(context, grpc.StatusCode.DEADLINE_EXCEEDED, why)
        except Exception as bug:  # noqa: BLE001 - what fails for one pod must not stop the others
            _log.exception("allocation failed", resource=resource)
            why = f"the node agent failed over {resource}: {type(bug).__name__}; its log says more"
            await self._refuse(context, grpc.StatusCode.INTERNAL, why)
        self._metrics.allocations.labels(resource).inc(len(answers))
        return wire.AllocateResponse(container_responses=map(_response, answers))

    async def _allocated(self, containers: Iterable[tuple[str, ...]]) -> list[ContainerAllocation]:
        answers = []
        for ids in containers:
            self._check(ids)
            answers.append(await self._allocator.allocate(self._device_list.resource, ids))
        if not answers:
            raise AllocationRefused(f"the request for {self._device_list.resource} names no container")
        return answers

    def _check(self, ids: tuple[str, ...]) -> None:
        """A device that is not listed as healthy at this moment is allocated to no pod, whatever the kubelet asks."""
        resource = self._device_list.resource
        if not ids:
            raise AllocationRefused(f"the request for {resource} names no device")
        if len(set(ids)) < len(ids):
            raise AllocationRefused(f"the request for {resource} names a device twice: {_named(ids)}")
        if unknown := [device for device in ids if not self._device_list.has(device)]:
            raise AllocationRefused(f"{resource} has no such device: {_named(unknown)}")
        if unhealthy := [device for device in ids if not self._device_list.is_healthy(device)]:
            raise AllocationRefused(
                f"{resource} no longer offers {_named(unhealthy)}: faulty, or about to move to another resource"
            )

    async def _refuse(self, context: _Context, code: grpc.StatusCode, why: str) -> NoReturn:
        self._metrics.refusals.labels(self._device_list.resource).inc()
        _log.warning("allocation refused", resource=self._device_list.resource, why=why)
        await context.abort(code, why[:_MAX_ERROR_CHARACTERS])


async def _parsed[M: Message](kind: type[M], raw: bytes, context: _Context) -> M:
    """The request, or an error in words: grpc's own would name a Python exception."""
    try:
        return kind.FromString(raw)
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{len(raw)} bytes that are no {kind.__name__}")


def _named(ids: Sequence[str]) -> str:
    """A few of the ids, shortened, so that the error fits into a header."""
    shown = ", ".join(ascii(device)[:80] for device in ids[:_NAMED])
    more = len(ids) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _response(answer: ContainerAllocation) -> wire.ContainerAllocateResponse:
    return wire.ContainerAllocateResponse(
        envs=answer.envs,
        annotations=answer.annotations,
        cdi_devices=(wire.CDIDevice(name=name) for name in answer.cdi_devices),
        devices=(
            wire.DeviceSpec(container_path=node.path, host_path=node.host_path, permissions=node.permissions)
            for node in answer.devices
        ),
        mounts=(
            wire.Mount(container_path=mount.path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in answer.mounts
        ),
    )
