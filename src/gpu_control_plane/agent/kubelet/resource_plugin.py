"""The device plugin of one resource: keeps a socket, a registration with the kubelet, and an open ListAndWatch stream.

Level-triggered: whatever woke it, it looks at the folder and at its streams, and restores what is missing. A kubelet
that restarts, a socket that was removed and a stream that ended are all handled alike.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog

from gpu_control_plane.agent.kubelet.device_list import DeviceList
from gpu_control_plane.agent.kubelet.endpoint import Endpoint
from gpu_control_plane.agent.kubelet.interface import Allocator, Device, PluginError, ResourceState
from gpu_control_plane.agent.kubelet.metrics import PluginMetrics
from gpu_control_plane.agent.kubelet.registration import NotRegistered, register
from gpu_control_plane.agent.kubelet.sockets import KUBELET_SOCKET, check_path_length, endpoint_name, identity
from gpu_control_plane.kube.backoff import Backoff

STREAM_OPEN_SECONDS: Final = 10.0
"""Time in which the kubelet opens its stream after it has accepted a registration; then the plugin registers again."""
STREAM_SETTLED_SECONDS: Final = 5.0
"""A stream that was open for longer than this did not end because the registration before it failed."""
STOP_GRACE_SECONDS: Final = 2.0
"""Time for calls to finish when a socket is closed."""

_log = structlog.get_logger(component="agent.kubelet.resource")


class ResourcePlugin:
    """Serves one resource from `run` on until it is cancelled."""

    def __init__(
        self,
        name: str,
        folder: Path,
        token: str,
        allocator: Allocator,
        *,
        metrics: PluginMetrics,
        on_change: Callable[[ResourceState], None],
        backoff: Backoff,
        rng: random.Random,
        clock: Callable[[], float],
        allocate_limit: float,
        may_register: Callable[[], bool],
    ) -> None:
        self.name = name
        self._folder = folder
        self._token = token
        self._allocator = allocator
        self._metrics = metrics
        self._on_change = on_change
        self._backoff = backoff
        self._rng = rng
        self._clock = clock
        self._allocate_limit = allocate_limit
        self._may_register = may_register
        self._device_list = DeviceList(name)
        self._endpoint: Endpoint | None = None
        self._servings = 0
        self._listened = False
        self._pushed_at: float | None = None
        self._kubelet: tuple[int, int] | None = None
        """The kubelet of the last registration, by the identity of its socket."""
        self._registered_at: float | None = None
        self._losses = 0
        """How often the last open stream has ended."""
        self._failures = 0
        self._not_before = 0.0
        self._wake = asyncio.Event()
        check_path_length(folder, endpoint_name(name, token, self._servings))

    def list(self, devices: Iterable[Device]) -> None:
        """Replace the device list; if it differs, open streams send it at once."""
        if self._device_list.replace(devices):
            healthy = self._device_list.healthy
            self._metrics.devices.labels(self.name, "healthy").set(healthy)
            self._metrics.devices.labels(self.name, "unhealthy").set(len(self._device_list.devices) - healthy)
            self._changed()

    def send_again(self) -> None:
        """Send the list once more on open streams."""
        self._device_list.send_again()

    def wake(self) -> None:
        """Look at the folder again: something in it may have changed."""
        self._wake.set()

    @property
    def state(self) -> ResourceState:
        streams = self._endpoint.streams if self._endpoint else 0
        return ResourceState(
            resource=self.name,
            devices=self._device_list.devices,
            registered=bool(streams) or self._registered_at is not None,
            streams=streams,
            list_sent=self._endpoint is not None and self._endpoint.list_sent,
            pushed_at=self._pushed_at,
        )

    async def run(self) -> None:
        """Serve until cancelled. Streams end with the list as it is then: as long as it is not empty, the kubelet only
        counts the devices as unhealthy until the next agent comes."""
        self._metrics.streams.labels(self.name).set(0)
        try:
            while True:
                self._wake.clear()
                pause = await self._reconcile()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), pause)
        finally:
            if self._endpoint:
                await self._endpoint.stop(STOP_GRACE_SECONDS)
                self._endpoint = None

    async def _reconcile(self) -> float | None:
        """Restore what is missing; returns the seconds after which to look again even if nothing changes.

        With an open stream nothing is missing: it proves that the kubelet runs and knows the resource. Registering
        again beside it would give the kubelet a second connection, and up to 1.36 the end of one ends the other, too.
        """
        endpoint = self._endpoint if self._endpoint and self._endpoint.present else await self._serve()
        kubelet = identity(self._folder / KUBELET_SOCKET)
        if kubelet is None or self.state.streams:
            return None
        if kubelet != self._kubelet:
            self._kubelet = kubelet
            self._forget_failures()
        if self._due() <= _now():
            await self._register(endpoint)
        return max(0.0, self._due() - _now())

    def _due(self) -> float:
        """When to register next, if no stream is open by then."""
        return self._not_before if self._registered_at is None else self._registered_at + STREAM_OPEN_SECONDS

    async def _serve(self) -> Endpoint:
        """Listen on a new socket. Names are never used twice: closing a socket removes its file, which must not be the
        file of the next one."""
        if self._endpoint:
            _log.warning("socket was removed", resource=self.name, socket=self._endpoint.path.name)
            await self._endpoint.stop(STOP_GRACE_SECONDS)
        self._servings += 1
        self._endpoint = Endpoint(
            self._folder / endpoint_name(self.name, self._token, self._servings),
            self._device_list,
            self._allocator,
            metrics=self._metrics,
            on_push=self._pushed,
            on_streams=self._streams_changed,
            time_limit=self._allocate_limit,
        )
        await self._endpoint.start()
        self._forget_failures()
        return self._endpoint

    async def _register(self, endpoint: Endpoint) -> None:
        """Register with the kubelet, which may open its stream, and even close it, before it answers."""
        if not self._may_register():
            raise PluginError(f"another agent serves this node now: {self.name} is not registered again")
        self._registered_at = None
        losses = self._losses
        try:
            await register(self._folder / KUBELET_SOCKET, self.name, endpoint.path.name)
        except NotRegistered as error:
            self._failed()
            self._metrics.registrations.labels(self.name, "failed").inc()
            if self._failures & (self._failures - 1) == 0:
                pause = round(self._not_before - _now(), 2)
                _log.warning("not registered", resource=self.name, why=str(error), next_try_in=pause)
        else:
            self._registered_at = _now() if self._losses == losses else None
            self._metrics.registrations.labels(self.name, "done").inc()
            _log.info("registered", resource=self.name, endpoint=endpoint.path.name)
        self._changed()

    def _streams_changed(self) -> None:
        """When the last stream has ended, register again: at once, unless that happens again and again."""
        streams = self.state.streams
        lost = self._listened and not streams
        self._listened = bool(streams)
        if lost:
            self._losses += 1
            if self._registered_at is not None and _now() - self._registered_at > STREAM_SETTLED_SECONDS:
                self._forget_failures()
            else:
                self._failed()
            self.wake()
        self._metrics.streams.labels(self.name).set(streams)
        self._changed()

    def _forget_failures(self) -> None:
        self._registered_at = None
        self._failures, self._not_before = 0, 0.0

    def _failed(self) -> None:
        self._registered_at = None
        self._failures += 1
        self._not_before = _now() + self._backoff.delay(self._failures, self._rng)

    def _pushed(self) -> None:
        self._pushed_at = self._clock()
        self._metrics.pushes.labels(self.name).inc()
        self._metrics.last_push.labels(self.name).set(self._pushed_at)
        self._changed()

    def _changed(self) -> None:
        self._on_change(self.state)


def _now() -> float:
    return asyncio.get_running_loop().time()
