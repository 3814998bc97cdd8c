"""The device plugins of a node: any number of resources, served by one process, each on a socket of its own."""

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from gpu_control_plane.agent.kubelet.inotify import changes
from gpu_control_plane.agent.kubelet.interface import Allocator, Device, PluginError, State
from gpu_control_plane.agent.kubelet.metrics import PluginMetrics
from gpu_control_plane.agent.kubelet.resource import Resource
from gpu_control_plane.agent.kubelet.sockets import DEVICE_PLUGINS, remove_leftovers
from gpu_control_plane.kube.backoff import Backoff

_BACKOFF: Final = Backoff(first=0.1, most=30.0)
_ALLOCATE_LIMIT: Final = 10.0
"""Seconds; the kubelet itself sets no limit, so a decision that hangs would keep every pod of the node waiting."""

_log = structlog.get_logger(component="agent.kubelet.plugins")


class Plugins:
    """Tells the kubelet which devices the node has, and hands them out as `allocator` decides.

    `announce` and `withdraw` say how it should be, at any time, also before `run` and while no kubelet is there; `run`
    makes it so and keeps it so. `on_change` hears of every change of a resource's `State`; it must not block or fail.
    """

    def __init__(
        self,
        allocator: Allocator,
        folder: Path = DEVICE_PLUGINS,
        *,
        on_change: Callable[[State], None] | None = None,
        metrics: PluginMetrics | None = None,
        backoff: Backoff = _BACKOFF,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
        allocate_limit: float = _ALLOCATE_LIMIT,
    ) -> None:
        self._allocator = allocator
        self._folder = folder
        self._on_change = on_change or _nobody
        self._metrics = metrics or PluginMetrics()
        self._backoff = backoff
        self._rng = rng or random.Random()
        self._clock = clock
        self._allocate_limit = allocate_limit
        self._token = secrets.token_hex(3)
        self._resources: dict[str, Resource] = {}
        self._tasks: dict[Resource, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    @property
    def states(self) -> Mapping[str, State]:
        """How far the kubelet has been told, by resource."""
        return {name: resource.state for name, resource in self._resources.items()}

    async def announce(self, resource: str, devices: Sequence[Device]) -> None:
        """Offer these devices, and no others, under this resource. The kubelet hears of it when it can.

        Raises TooManyDevices when the kubelet could not read the list.
        """
        known = self._resources.get(resource)
        offered = known or self._new(resource)
        offered.list(devices)
        if known is None:
            self._resources[resource] = offered
            self._start(offered)

    async def withdraw(self, resource: str) -> None:
        """Serve the resource no longer: the kubelet is told that it has no devices, then the socket is closed."""
        offered = self._resources.pop(resource, None)
        if offered is None:
            return
        offered.list(())
        if task := self._tasks.get(offered):
            task.cancel()
            await asyncio.wait((task,))
        if resource not in self._resources:
            self._metrics.forget(resource)

    async def run(self) -> None:
        """Serve until cancelled. Raises PluginError when the folder is unusable or has gone."""
        await asyncio.to_thread(self._prepare)
        async with changes(self._folder) as folder, asyncio.TaskGroup() as group:
            self._group = group
            try:
                for resource in self._resources.values():
                    self._start(resource)
                while not folder.gone:
                    await folder.next()
                    for resource in self._resources.values():
                        resource.wake()
                raise PluginError(f"the folder {self._folder} was removed; a restart shows the kubelet's new one")
            finally:
                self._group = None

    def _prepare(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in remove_leftovers(self._folder):
            _log.info("removed the socket of an agent that is no more", socket=path.name)

    def _new(self, name: str) -> Resource:
        return Resource(
            name,
            self._folder,
            self._token,
            self._allocator,
            metrics=self._metrics,
            on_change=self._on_change,
            backoff=self._backoff,
            rng=self._rng,
            clock=self._clock,
            allocate_limit=self._allocate_limit,
        )

    def _start(self, resource: Resource) -> None:
        if self._group is None:
            return
        task = self._tasks[resource] = self._group.create_task(resource.run())
        task.add_done_callback(lambda _: self._tasks.pop(resource, None))


def _nobody(_state: State) -> None:
    """Nobody listens."""
