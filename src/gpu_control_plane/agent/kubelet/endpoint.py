"""One socket on which the kubelet asks about one resource: which devices there are, which are best, what comes with
them. A socket that is lost is replaced by a new endpoint over the same listing.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from gpu_control_plane.agent.kubelet.interface import Allocator, Grant, PluginError, Refused
from gpu_control_plane.agent.kubelet.listing import Listing
from gpu_control_plane.agent.kubelet.metrics import PluginMetrics
from gpu_control_plane.agent.kubelet.protocol import deviceplugin_pb2 as wire
from gpu_control_plane.agent.kubelet.sockets import OPTIONS, identity

SERVICE: Final = "v1beta1.DevicePlugin"

_LONGEST_MESSAGE: Final = 500
"""Characters; errors travel in HTTP/2 headers, which are refused when they grow too long."""
_NAMED: Final = 3

_log = structlog.get_logger(component="agent.kubelet.endpoint")

type _Context = grpc.aio.ServicerContext[Any, Any]


class _Stream:
    """Somebody who listens for lists, and the last one that was sent."""

    def __init__(self) -> None:
        self.sent: bytes | None = None


class Endpoint:
    """Serves one resource on one socket, from `start` to `stop`."""

    def __init__(
        self,
        path: Path,
        listing: Listing,
        allocator: Allocator,
        *,
        metrics: PluginMetrics,
        on_push: Callable[[], None],
        on_streams: Callable[[], None],
        time_limit: float,
    ) -> None:
        self.path = path
        self._streams: set[_Stream] = set()
        self._listing = listing
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
        """End the streams, each after it has sent the present list, let calls finish, and remove the socket."""
        self._closing = True
        self._listing.wake()
        await self._server.stop(grace)

    @property
    def present(self) -> bool:
        """Whether the kubelet could still find the socket."""
        return identity(self.path) is not None

    @property
    def streams(self) -> int:
        """How many listen."""
        return len(self._streams)

    @property
    def told(self) -> bool:
        """Whether everybody who listens has been sent the present list, and somebody does listen."""
        return bool(self._streams) and all(stream.sent == self._listing.payload for stream in self._streams)

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
                news = self._listing.news
                if stream.sent != self._listing.payload:
                    payload = self._listing.payload
                    await context.write(payload)
                    stream.sent = payload
                    self._on_push()
                elif self._closing:
                    return
                else:
                    await news.wait()
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
        """The allocator's choice where it makes sense, else any: this is advice, and an error would fail the pod."""
        must = [device for device in dict.fromkeys(required) if self._listing.offers(device)]
        may = [device for device in dict.fromkeys((*must, *available)) if self._listing.offers(device)]
        wanted = max(len(must), min(size, len(may)))
        try:
            chosen = list(
                dict.fromkeys(self._allocator.prefer(self._listing.resource, tuple(may), tuple(must), wanted))
            )
        except Exception:  # noqa: BLE001 - whatever it is, the pod must not suffer from it
            _log.exception("no preference among devices: the first ones are taken", resource=self._listing.resource)
            return may[:wanted]
        if len(chosen) == wanted and set(must) <= set(chosen) <= set(may):
            return chosen
        _log.error("a preference makes no sense: the first devices are taken", resource=self._listing.resource)
        return may[:wanted]

    async def _allocate(self, raw: bytes, context: _Context) -> wire.AllocateResponse:
        request = await _parsed(wire.AllocateRequest, raw, context)
        resource = self._listing.resource
        try:
            with self._metrics.allocate_seconds.labels(resource).time():
                async with asyncio.timeout(self._time_limit):
                    grants = await self._granted(tuple(c.devices_ids) for c in request.container_requests)
        except Refused as refusal:
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
        except TimeoutError:
            why = f"the node agent did not decide about {resource} within {self._time_limit:g} s"
            await self._refuse(context, grpc.StatusCode.DEADLINE_EXCEEDED, why)
        except Exception as bug:  # noqa: BLE001 - one pod's trouble, even a bug, must not stop the others
            _log.exception("allocation failed", resource=resource)
            why = f"the node agent failed over {resource}: {type(bug).__name__}; its log says more"
            await self._refuse(context, grpc.StatusCode.INTERNAL, why)
        self._metrics.allocations.labels(resource).inc(len(grants))
        return wire.AllocateResponse(container_responses=map(_response, grants))

    async def _granted(self, containers: Iterable[tuple[str, ...]]) -> list[Grant]:
        grants = []
        for ids in containers:
            self._check(ids)
            grants.append(await self._allocator.allocate(self._listing.resource, ids))
        if not grants:
            raise Refused(f"the request for {self._listing.resource} names no container")
        return grants

    def _check(self, ids: tuple[str, ...]) -> None:
        """What is not listed as healthy at this moment is handed out to nobody, whatever the kubelet still believes."""
        resource = self._listing.resource
        if not ids:
            raise Refused(f"the request for {resource} names no device")
        if len(set(ids)) < len(ids):
            raise Refused(f"the request for {resource} names a device twice: {_named(ids)}")
        if unknown := [device for device in ids if not self._listing.knows(device)]:
            raise Refused(f"{resource} has no such device: {_named(unknown)}")
        if ill := [device for device in ids if not self._listing.offers(device)]:
            raise Refused(f"{resource} no longer offers {_named(ill)}: faulty, or about to move to another resource")

    async def _refuse(self, context: _Context, code: grpc.StatusCode, why: str) -> NoReturn:
        self._metrics.refusals.labels(self._listing.resource).inc()
        _log.warning("devices refused", resource=self._listing.resource, why=why)
        await context.abort(code, why[:_LONGEST_MESSAGE])


async def _parsed[M: Message](kind: type[M], raw: bytes, context: _Context) -> M:
    """The request, or an error that says what was wrong: grpc's own would name a Python exception."""
    try:
        return kind.FromString(raw)
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{len(raw)} bytes that are no {kind.__name__}")


def _named(ids: Sequence[str]) -> str:
    """A few of the ids, shortened: whatever was asked for, the answer has to fit into a header."""
    shown = ", ".join(ascii(device)[:80] for device in ids[:_NAMED])
    more = len(ids) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _response(grant: Grant) -> wire.ContainerAllocateResponse:
    return wire.ContainerAllocateResponse(
        envs=grant.envs,
        annotations=grant.annotations,
        cdi_devices=(wire.CDIDevice(name=name) for name in grant.cdi_devices),
        devices=(
            wire.DeviceSpec(container_path=node.path, host_path=node.host_path, permissions=node.permissions)
            for node in grant.devices
        ),
        mounts=(
            wire.Mount(container_path=mount.path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in grant.mounts
        ),
    )
