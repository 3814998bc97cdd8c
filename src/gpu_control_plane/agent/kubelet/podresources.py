"""The kubelet's own books: which container holds which devices, and which devices it would hand out."""

import asyncio
from collections import defaultdict
from typing import Final

import grpc
from google.protobuf.message import Message

from gpu_control_plane.agent.kubelet.fresh import Fresh
from gpu_control_plane.agent.kubelet.protocol import podresources_pb2 as wire
from gpu_control_plane.agent.kubelet.sockets import open_channel
from gpu_control_plane.agent.units import ContainerDevices

SOCKET: Final = "unix:///var/lib/kubelet/pod-resources/kubelet.sock"
SERVICE: Final = "v1.PodResourcesLister"

_LONGEST_ANSWER: Final = 16 * 1024 * 1024
_PAUSE: Final = 0.05
"""Seconds between calls of one method. The kubelet takes 100 requests a second from everybody together."""
_TRIES: Final = 3
"""How often a request is made that the kubelet turns away because there were too many."""


class KubeletUnavailable(Exception):
    """The kubelet's pod-resources API gave no answer; nothing is known about who holds what."""


class PodResources:
    """Reads the kubelet's books. Each call makes its own connection, so that a restarted kubelet is never noticed;
    calls of the same moment are shared, and always answered from a reading that began after they were made.

    Init containers are not in the books while they run, except sidecars.
    """

    def __init__(self, socket: str = SOCKET, *, timeout: float = 5.0, pause: float = _PAUSE) -> None:
        if not socket.startswith("unix:///"):
            raise ValueError(f"the kubelet's socket is given as unix:///path, not as {socket!r}")
        self._socket = socket
        self._timeout = timeout
        self._pause = pause
        self._held = Fresh(self._read_held, pause)
        self._allocatable = Fresh(self._read_allocatable, pause)

    async def list(self) -> tuple[ContainerDevices, ...]:
        """Who holds what, in order; only active pods. Raises KubeletUnavailable."""
        return await self._held.get()

    async def allocatable(self) -> dict[str, frozenset[str]]:
        """The devices that the kubelet takes for healthy, in use or not, by resource. Raises KubeletUnavailable."""
        return await self._allocatable.get()

    async def _read_held(self) -> tuple[ContainerDevices, ...]:
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
                crowded = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                if not crowded or tries == _TRIES:
                    raise KubeletUnavailable(
                        f"the kubelet at {self._socket} did not answer {method}: {error.code().name}, {error.details()}"
                    ) from error
            await asyncio.sleep(self._pause * 2**tries)

    async def _call[M: Message](self, method: str, request: Message, kind: type[M]) -> M:
        async with open_channel(self._socket, limit=_LONGEST_ANSWER) as channel:
            call = channel.unary_unary(f"/{SERVICE}/{method}", type(request).SerializeToString, kind.FromString)
            return await call(request, timeout=self._timeout)
