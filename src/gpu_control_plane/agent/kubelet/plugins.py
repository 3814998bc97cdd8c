"""The device plugins of a node: any number of resources from one process, each on a socket of its own."""

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from gpu_control_plane.agent.kubelet.inotify import changes
from gpu_control_plane.agent.kubelet.interface import Allocator, Device, PluginError, ResourceState
from gpu_control_plane.agent.kubelet.metrics import PluginMetrics
from gpu_control_plane.agent.kubelet.resource_plugin import ResourcePlugin
from gpu_control_plane.agent.kubelet.sockets import DEVICE_PLUGINS, remove_stale_sockets
from gpu_control_plane.kube.backoff import Backoff

_BACKOFF: Final = Backoff(first=0.1, most=30.0)
_ALLOCATE_SECONDS: Final = 10.0
"""The kubelet itself sets no limit: an allocator that hangs would keep every pod of the node waiting."""

_log = structlog.get_logger(component="agent.kubelet.plugins")


class DevicePlugins:
    """Advertises devices to the kubelet, and allocates them as `allocator` decides.

    `advertise` and `withdraw` say what should be, at any time, also before `run` and while there is no kubelet; `run`
    brings it about. `on_change` is called at every change of a `ResourceState`; it must not block or fail. Before every
    registration `may_register` is asked: an agent that another one has replaced must not take the resource back.
    """

    def __init__(
        self,
        allocator: Allocator,
        folder: Path = DEVICE_PLUGINS,
        *,
        on_change: Callable[[ResourceState], None] | None = None,
        metrics: PluginMetrics | None = None,
        backoff: Backoff = _BACKOFF,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
        allocate_limit: float = _ALLOCATE_SECONDS,
        may_register: Callable[[], bool] = lambda: True,
    ) -> None:
        self._allocator = allocator
        self._folder = folder
        self._on_change = on_change or _ignore
        self._metrics = metrics or PluginMetrics()
        self._backoff = backoff
        self._rng = rng or random.Random()
        self._clock = clock
        self._allocate_limit = allocate_limit
        self._may_register = may_register
        self._token = secrets.token_hex(3)
        self._resources: dict[str, ResourcePlugin] = {}
        self._tasks: dict[ResourcePlugin, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    @property
    def states(self) -> Mapping[str, ResourceState]:
        """What the kubelet has been sent, by resource."""
        return {name: resource.state for name, resource in self._resources.items()}

    async def advertise(self, resource: str, devices: Sequence[Device]) -> None:
        """Advertise these devices, and no others, in this resource, as soon as there is a kubelet.

        Raises TooManyDevices when the kubelet could not receive the list.
        """
        known = self._resources.get(resource)
        plugin = known or self._new(resource)
        plugin.list(devices)
        if known is None:
            self._resources[resource] = plugin
            self._start(plugin)

    async def withdraw(self, resource: str) -> None:
        """Stop serving the resource: the kubelet is sent an empty list, then the socket is closed."""
        plugin = self._resources.pop(resource, None)
        if plugin is None:
            return
        plugin.list(())
        if task := self._tasks.get(plugin):
            task.cancel()
            await asyncio.wait((task,))
        if resource not in self._resources:
            self._metrics.forget(resource)

    def send_again(self) -> None:
        """Send the kubelet a list that it has already, if it listens to any: it writes its checkpoint after every list,
        without the pods that it no longer knows."""
        listening = next((plugin for plugin in self._resources.values() if plugin.state.list_sent), None)
        if listening is not None:
            listening.send_again()

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
        for path in remove_stale_sockets(self._folder):
            _log.info("stale socket removed", socket=path.name)

    def _new(self, name: str) -> ResourcePlugin:
        return ResourcePlugin(
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
            may_register=self._may_register,
        )

    def _start(self, resource: ResourcePlugin) -> None:
        if self._group is None:
            return
        task = self._tasks[resource] = self._group.create_task(resource.run())
        task.add_done_callback(lambda _: self._tasks.pop(resource, None))


def _ignore(_state: ResourceState) -> None:
    """For callers that need no notice of changes."""
