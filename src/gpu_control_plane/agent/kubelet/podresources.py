"""The kubelet's pod resources API: which container holds which devices, and which devices it may allocate."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final

import grpc
from google.protobuf.message import Message

from gpu_control_plane.agent.kubelet.protocol import podresources_pb2 as wire
from gpu_control_plane.agent.kubelet.sockets import open_channel
from gpu_control_plane.agent.units import ContainerDevices

SOCKET: Final = "unix:///var/lib/kubelet/pod-resources/kubelet.sock"
SERVICE: Final = "v1.PodResourcesLister"

_MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
_MIN_INTERVAL_SECONDS: Final = 0.05
"""Time between two calls of one method. The kubelet takes 100 requests a second from all clients together."""
_MAX_TRIES: Final = 3
"""How often a request is made that the kubelet rejects because there were too many."""


class KubeletUnavailable(Exception):
    """The kubelet gave no answer: it is not known which pods hold which devices."""


class SharedCall[T]:
    """Shares the calls of one function between callers, with at least `interval` seconds between two calls.

    The answer always comes from a call that began after it was asked for: a caller that has just changed something must
    not get an answer from before.
    """

    def __init__(self, function: Callable[[], Awaitable[T]], interval: float) -> None:
        self._function = function
        self._interval = interval
        self._one_at_a_time = asyncio.Lock()
        self._begun = 0
        self._finished: tuple[int, asyncio.Future[T]] | None = None
        self._not_before = 0.0

    async def get(self) -> T:
        """The answer of a call that begins from now on, or its failure."""
        begun_before = self._begun
        async with self._one_at_a_time:
            if self._finished is None or self._finished[0] <= begun_before:
                self._finished = await self._call()
            return self._finished[1].result()

    async def _call(self) -> tuple[int, asyncio.Future[T]]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._not_before - loop.time()))
        self._not_before = loop.time() + self._interval
        self._begun += 1
        outcome: asyncio.Future[T] = loop.create_future()
        try:
            outcome.set_result(await self._function())
        except Exception as error:  # noqa: BLE001 - raised again in each caller
            outcome.set_exception(error)
        return self._begun, outcome


class PodResources:
    """Asks the kubelet. Each request has a connection of its own, so that a restart of the kubelet does not matter;
    callers at the same time share a request, which always begins after they have called.

    The kubelet does not list init containers while they run, except sidecars.
    """

    def __init__(self, socket: str = SOCKET, *, timeout: float = 5.0, pause: float = _MIN_INTERVAL_SECONDS) -> None:
        if not socket.startswith("unix:///"):
            raise ValueError(f"the kubelet's socket is given as unix:///path, not as {socket!r}")
        self._socket = socket
        self._timeout = timeout
        self._pause = pause
        self._allocations = SharedCall(self._read_allocations, pause)
        self._allocatable = SharedCall(self._read_allocatable, pause)

    async def list(self) -> tuple[ContainerDevices, ...]:
        """The devices of each container of an active pod, in order. Raises KubeletUnavailable."""
        return await self._allocations.get()

    async def allocatable(self) -> dict[str, frozenset[str]]:
        """The devices that the kubelet counts as healthy, in use or not, by resource. Raises KubeletUnavailable."""
        return await self._allocatable.get()

    async def _read_allocations(self) -> tuple[ContainerDevices, ...]:
        answer = await self._ask("List", wire.ListPodResourcesRequest(), wire.ListPodResourcesResponse)
        held: dict[tuple[str, str, str, str], set[str]] = defaultdict(set)
        for pod in answer.pod_resources:
            for container in pod.containers:
                for devices in container.devices:
                    held[pod.namespace, pod.name, container.name, devices.resource_name].update(devices.device_ids)
        return tuple(ContainerDevices(*whose, tuple(sorted(ids))) for whose, ids in sorted(held.items()))

    async def _read_allocatable(self) -> dict[str, frozenset[str]]:
        answer = await self._ask(
            "GetAllocatableResources", wire.AllocatableResourcesRequest(), wire.AllocatableResourcesResponse
        )
        devices: dict[str, set[str]] = defaultdict(set)
        for some in answer.devices:
            devices[some.resource_name].update(some.device_ids)
        return {resource: frozenset(ids) for resource, ids in devices.items()}

    async def _ask[M: Message](self, method: str, request: Message, kind: type[M]) -> M:
        tries = 0
        while True:
            tries += 1
            try:
                return await self._call(method, request, kind)
            except grpc.aio.AioRpcError as error:
                too_many = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                if not too_many or tries == _MAX_TRIES:
                    raise KubeletUnavailable(
                        f"the kubelet at {self._socket} did not answer {method}: {error.code().name}, {error.details()}"
                    ) from error
            await asyncio.sleep(self._pause * 2**tries)

    async def _call[M: Message](self, method: str, request: Message, kind: type[M]) -> M:
        async with open_channel(self._socket, limit=_MAX_RESPONSE_BYTES) as channel:
            call = channel.unary_unary(f"/{SERVICE}/{method}", type(request).SerializeToString, kind.FromString)
            return await call(request, timeout=self._timeout)
