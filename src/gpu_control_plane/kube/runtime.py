"""A whole controller process: shared caches, controllers, leadership, Events, metrics and an orderly end.

Caches, metrics and webhooks run on every replica, so that a new leader starts with everything in memory; controllers
run on the leader alone, and all their writes pass its fence.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog

from gpu_control_plane.kube.apply import Applier
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import EVERYTHING, Client, Selection, decoder
from gpu_control_plane.kube.config import Config, load_config
from gpu_control_plane.kube.controller import Controller, Reconcile
from gpu_control_plane.kube.events import EventRecorder
from gpu_control_plane.kube.leader import Leadership, Timing
from gpu_control_plane.kube.metrics import Metrics
from gpu_control_plane.kube.objects import Key, Object, Resource
from gpu_control_plane.kube.process_events import ProcessEvent
from gpu_control_plane.kube.recovery import ONE_OF_FEW, ONE_OF_MANY, Recovery
from gpu_control_plane.kube.status_server import StatusServer
from gpu_control_plane.kube.watch import ApiSource

_log = structlog.get_logger(component="kube.runtime")


class Runtime:
    """Declare caches and controllers, then `run`; `process.main` does both for a process of its own.

    `client` writes only while this process leads; `unfenced_client` is for what every replica does, such as webhooks.
    """

    def __init__(
        self,
        name: str,
        *,
        config: Config | None = None,
        kubeconfig: Path | None = None,
        namespace: str | None = None,
        identity: str | None = None,
        elect: bool = True,
        timing: Timing | None = None,
        status_port: int | None = 8080,
        status_host: str = "0.0.0.0",  # noqa: S104 - the kubelet and Prometheus call from outside the pod
        sync_timeout: float = 30.0,
        metrics: Metrics | None = None,
        one_of_many: bool | None = None,
    ) -> None:
        """`one_of_many` says whether there may be thousands of these processes: by default, those without an election,
        which run on every node."""
        config = config or load_config(kubeconfig)
        self.name = name
        self.metrics = metrics or Metrics()
        self.identity = identity or f"{socket.gethostname()}-{os.getpid()}"
        self._sync_timeout = sync_timeout
        many = one_of_many if one_of_many is not None else not elect
        recovery = Recovery(ONE_OF_MANY if many else ONE_OF_FEW)
        self.unfenced_client = Client(config, metrics=self.metrics, recovery=recovery)
        self.events = EventRecorder(self.unfenced_client, name, self.identity)
        self._leadership = (
            Leadership(
                self.unfenced_client,
                events=self.events,
                name=name,
                namespace=namespace or config.namespace,
                identity=self.identity,
                timing=timing,
            )
            if elect
            else None
        )
        self._caches: dict[tuple[type[Object], Selection], Cache[Any]] = {}
        self.client = self.unfenced_client.fenced(
            self._leadership.check if self._leadership else None, _OwnWrites(self._caches)
        )
        self.status = StatusServer(self.metrics.registry, host=status_host, port=status_port or 0)
        self._serves_status = status_port is not None
        self._controllers: list[Controller] = []
        self._services: list[Callable[[], Coroutine[None, None, None]]] = []
        self._on_lead: list[Callable[[], None]] = []
        self._stopping = asyncio.Event()
        self._working: asyncio.Task[None] | None = None

    def cache[T: Object](self, kind: type[T], selection: Selection = EVERYTHING) -> Cache[T]:
        """The one cache of this kind and selection: asking for it again gives the same."""
        held = self._caches.get((kind, selection))
        if held is None:
            source = ApiSource(self.unfenced_client, kind, selection)
            held = Cache(
                kind,
                source,
                selects=selection.surely_selects,
                metrics=self.metrics,
                recovery=self.unfenced_client.recovery,
            )
            self._caches[kind, selection] = held
            self.status.ready(f"cache {kind.resource.qualified_name}", _sync_check(held))
        return held

    def controller(self, name: str, reconcile: Reconcile, *, workers: int = 8) -> Controller:
        """A controller that runs while this process leads; say with `.watch(…)` what wakes it."""
        made = Controller(name, reconcile, workers=workers, metrics=self.metrics, tell=self.tell_failure)
        self._controllers.append(made)
        return made

    def applier(self, manager: str) -> Applier:
        """Server-side apply under this field manager, fenced by leadership."""
        return Applier(self.client, manager)

    def service(self, run: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run something on every replica for as long as the process lives, such as a webhook server."""
        self._services.append(run)

    def on_lead(self, forget: Callable[[], None]) -> None:
        """Call `forget` whenever this process begins to lead, before any controller works: what it remembers from the
        last time it led is not true any more if another replica has led since."""
        self._on_lead.append(forget)

    def stop(self) -> None:
        """Ask for an orderly end."""
        self._stopping.set()

    @property
    def leading(self) -> bool:
        return self._leadership is None or self._leadership.leading

    async def run(self) -> None:
        """Run until `stop`. What has begun is finished, the lease is handed over, Events are written, in this order."""
        self.status.ready("not stopping", lambda: "stopping" if self._stopping.is_set() else None)
        self._watch_liveness()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.unfenced_client)
            if self._serves_status:
                await stack.enter_async_context(self.status.serving())
            await stack.enter_async_context(_running(*(service() for service in self._services)))
            await stack.enter_async_context(_running(self.events.run()))
            await stack.enter_async_context(
                _running(*(cache.run(self._sync_timeout) for cache in self._caches.values()))
            )
            async with asyncio.TaskGroup() as group:
                work = self._working = group.create_task(self._work())
                await self._stopping.wait()
                work.cancel()

    def _watch_liveness(self) -> None:
        """A process that is stuck is restarted. One whose event loop is stuck does not answer at all."""
        if self._leadership is not None:
            self.status.alive("leader election", self._leadership.problem)
        for controller in self._controllers:
            self.status.alive(f"controller {controller.name}", controller.problem)
        if self._controllers:
            self.status.alive("controllers", lambda: "they have ended" if self._has_ended() else None)

    def _has_ended(self) -> bool:
        return self._working is not None and self._working.done() and not self._stopping.is_set()

    def tell_failure(self, about: Object | None, note: str) -> None:
        """Record that a reconcile keeps failing: on the object where it is the cluster's or ours, else on the Lease,
        since our trouble is no news for a user. An agent, which takes part in no election, has its log alone."""
        if self._leadership is None:
            return
        lease = self._leadership.lease
        is_ours = about is not None and about.metadata.namespace in (None, lease.metadata.namespace)
        self.events.warning(about if about is not None and is_ours else lease, ProcessEvent.RECONCILE_FAILED, note)

    async def _work(self) -> None:
        for cache in self._caches.values():
            await cache.synced()
        _log.info("caches complete", objects=sum(len(cache) for cache in self._caches.values()))
        if self._leadership is None:
            await self._reconcile()
        else:
            await self._leadership.run(self._reconcile)

    async def _reconcile(self) -> None:
        for forget in self._on_lead:
            forget()
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                group.create_task(controller.run())


class _OwnWrites:
    """Lets caches learn what the controllers write: deciding on an older state would write, and report, it again."""

    def __init__(self, caches: Mapping[tuple[type[Object], Selection], Cache[Any]]) -> None:
        self._caches = caches

    def written(self, written: Object, answer: bytes) -> None:
        for cache in self._of(type(written).resource):
            if cache.kind is type(written):
                cache.learn(written)
            else:
                with suppress(msgspec.ValidationError):  # the watch reports what does not fit this type
                    cache.learn(decoder(cache.kind).decode(answer))

    def deleted(self, resource: Resource, key: Key, uid: str) -> None:
        for cache in self._of(resource):
            cache.learn_deletion(key, uid)

    def _of(self, resource: Resource) -> list[Cache[Any]]:
        return [cache for (kind, _), cache in self._caches.items() if kind.resource == resource]


@asynccontextmanager
async def _running(*tasks: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run tasks beside the block: their failure ends the block, the block's end cancels them and waits."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(task) for task in tasks]
        yield
        for task in running:
            task.cancel()


def _sync_check(cache: Cache[Any]) -> Callable[[], str | None]:
    def check() -> str | None:
        return None if cache.is_synced else f"waiting ({cache.watch_error or 'listing'})"

    return check
