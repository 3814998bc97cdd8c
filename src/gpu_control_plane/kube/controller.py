"""The reconcile loop: keys concerned by a change are reconciled, a few at a time, until they succeed.

Level-triggered: a reconcile is told which object, never what happened, and reads the present state from caches.
Failures back off for each key alone, so that one bad object cannot slow the others down. A conflict does not back off:
the key is reconciled again as soon as a cache shows the write that was faster.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
import structlog

from gpu_control_plane.kube.backoff import Backoff
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.conflict_retry import ConflictRetries
from gpu_control_plane.kube.errors import Conflict, KubeError, LeadershipLost, StaleWrite
from gpu_control_plane.kube.metrics import Metrics
from gpu_control_plane.kube.objects import Key, Object
from gpu_control_plane.kube.process_events import PERSISTENT_FAILURES
from gpu_control_plane.kube.queue import QueueClosed, WorkQueue
from gpu_control_plane.kube.signal import Keyed, Watchable

_CONFLICT_RETRY_SECONDS = 1.0
"""When a key is reconciled again after a conflict at the latest, whatever the caches show by then."""
_PROMPT_RETRIES = 5
"""Conflicts in a row after which a key is no longer retried promptly: of many writers who are, all but one fail."""

_log = structlog.get_logger(component="kube.controller")


class Requeue(msgspec.Struct, frozen=True):
    """Returned by a reconcile that wants to be called again after `after` seconds without any change."""

    after: float


Reconcile = Callable[[Key], Awaitable[Requeue | None]]
Tell = Callable[[Object | None, str], None]
"""Tells people that a key keeps failing: the object of that key, if a cache has it, and a sentence."""


class _Trigger[T](msgspec.Struct, frozen=True):
    """A cache or a signal that wakes the controller: which changes matter and which keys they concern."""

    source: Watchable[T]
    concerns: Callable[[T], Iterable[Key]]
    when: Callable[[T | None, T | None], bool]

    def keys(self, old: T | None, new: T | None) -> set[Key]:
        """Keys of both sides of a change: what moves from one owner to another concerns both."""
        if not self.when(old, new):
            return set()
        return {key for side in (old, new) if side is not None for key in self.concerns(side)}


def itself(item: Keyed) -> Iterable[Key]:
    """The usual mapping: an object's change concerns the object."""
    return (item.key,)


def always(_old: object, _new: object) -> bool:
    return True


class Controller:
    """One reconcile function with its triggers, queue and workers. `run` may be called again after it ended."""

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        workers: int = 8,
        backoff: Backoff | None = None,
        time_limit: float = 120.0,
        drain_limit: float = 20.0,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
        tell: "Tell | None" = None,
    ) -> None:
        self.name = name
        self._tell = tell
        self._reconcile = reconcile
        self._workers = workers
        self._backoff = backoff or Backoff()
        self._time_limit = time_limit
        self._drain_limit = drain_limit
        self._metrics = metrics or Metrics()
        self._rng = rng or random.Random()
        self._triggers: list[_Trigger[Any]] = []
        self._queue: WorkQueue[Key] | None = None
        self._conflicts = ConflictRetries(())
        self._began: dict[Key, float] = {}
        """Since when each key is being worked on, by the loop's clock."""

    def watch[T: Keyed](
        self,
        source: Watchable[T],
        concerns: Callable[[T], Iterable[Key]] = itself,
        when: Callable[[T | None, T | None], bool] = always,
    ) -> "Controller":
        """Wake up at changes of a cache or a signal that `when` accepts, for the keys that `concerns` names."""
        self._triggers.append(_Trigger(source, concerns, when))
        return self

    def enqueue(self, key: Key) -> None:
        """Have `key` reconciled for a reason that no cache shows. Another part of the process fires a `Signal`
        instead, which the controller watches: then it need not know whom it wakes."""
        if self._queue is not None:
            self._queue.add(key)

    def problem(self) -> str | None:
        """Why this controller will do no more work, for a liveness check; None while it works or is not meant to.

        A reconcile that takes too long is cancelled. One that does not end nevertheless keeps its worker.
        """
        limit = 2 * self._time_limit
        now = asyncio.get_running_loop().time()
        stuck = sorted(str(key) for key, began in self._began.items() if now - began > limit)
        if len(stuck) < self._workers:
            return None
        return f"every worker has been at the same key for more than {limit:g} s: {', '.join(stuck)}"

    async def run(self) -> None:
        """Reconcile until cancelled. Begins when all caches are complete, with everything that exists."""
        for trigger in self._triggers:
            await trigger.source.synced()
        queue = self._queue = WorkQueue[Key](
            backoff=self._backoff,
            rng=self._rng,
            on_wait=self._metrics.queue_seconds.labels(self.name).observe,
            on_depth=self._metrics.queue_depth.labels(self.name).set,
        )
        sources = [trigger.source for trigger in self._triggers]
        self._conflicts = ConflictRetries(source for source in sources if isinstance(source, Cache))
        handlers = [(trigger.source, _enqueuer(trigger, queue, self._conflicts)) for trigger in self._triggers]
        for source, handler in handlers:
            source.on_change(handler)
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._workers):
                    workers.create_task(self._work(queue))
        finally:
            for source, handler in handlers:
                source.remove_handler(handler)
            self._queue = None

    async def _work(self, queue: WorkQueue[Key]) -> None:
        while True:
            try:
                key = await queue.get()
            except QueueClosed:
                return
            work = asyncio.ensure_future(self._attempt(queue, key))
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                # Stopping: a reconcile that has begun may finish; the next leader would have to repair half of one.
                queue.close()
                await self._finish(work)
                raise
            finally:
                queue.done(key)

    async def _finish(self, work: "asyncio.Future[None]") -> None:
        done, _ = await asyncio.wait((work,), timeout=self._drain_limit)
        if not done:
            work.cancel()
            await asyncio.wait((work,))

    async def _attempt(self, queue: WorkQueue[Key], key: Key) -> None:
        """One reconcile, with its outcome turned into what the queue does next."""
        busy = self._metrics.workers_busy.labels(self.name)
        busy.inc()
        self._began[key] = asyncio.get_running_loop().time()
        try:
            with self._metrics.reconcile_seconds.labels(self.name).time():
                async with asyncio.timeout(self._time_limit):
                    requeue = await self._reconcile(key)
        except Exception as raised:  # noqa: BLE001 - one object's failure, even a bug, must not stop the others
            self._after_failure(queue, key, _deciding_error(raised))
        else:
            queue.forget(key)
            self._count("done" if requeue is None else "requeued")
            if requeue is not None:
                queue.add_after(key, requeue.after)
        finally:
            self._began.pop(key, None)
            busy.dec()

    def _after_failure(self, queue: WorkQueue[Key], key: Key, error: Exception) -> None:
        if isinstance(error, LeadershipLost):
            self._count("failed")
            raise error
        if isinstance(error, Conflict):
            self._count("conflict")
            self._after_conflict(queue, key, error.stale_write)
            return
        self._count("failed")
        self._report(key, error, queue.failures(key) + 1, queue.retry(key))

    def _after_conflict(self, queue: WorkQueue[Key], key: Key, stale: StaleWrite | None) -> None:
        """The object was changed by another writer; the change is on its way to the cache, or has arrived."""
        versions = self._conflicts.held_versions(stale) if stale is not None else ()
        if stale is None or not versions:
            queue.retry(key)
            return
        queue.retry(key, after=_CONFLICT_RETRY_SECONDS * self._rng.uniform(0.5, 1.0))
        if queue.failures(key) > _PROMPT_RETRIES:
            return
        if stale.version in versions:
            self._conflicts.wait(key, stale)
        else:
            queue.add(key)

    def _object(self, key: Key) -> Object | None:
        """The object of this key; keys of no object, or of one that is gone, have none."""
        caches = (trigger.source for trigger in self._triggers if isinstance(trigger.source, Cache))
        return next((found for cache in caches if (found := cache.at(key)) is not None), None)

    def _count(self, result: str) -> None:
        self._metrics.reconciles.labels(self.name, result).inc()

    def _report(self, key: Key, error: Exception, failures: int, pause: float) -> None:
        """Once when a key starts to fail, then at every doubling."""
        if failures & (failures - 1):
            return
        expected = isinstance(error, KubeError | TimeoutError)
        why = f"it took longer than {self._time_limit:g} s" if isinstance(error, TimeoutError) else str(error)
        if failures == PERSISTENT_FAILURES and self._tell is not None:
            self._tell(self._object(key), f"{self.name} keeps failing on {key}: {why or type(error).__name__}")
        _log.warning(
            "reconcile failed",
            controller=self.name,
            key=str(key),
            why=why or type(error).__name__,
            failures=failures,
            next_try_in=round(pause, 2),
            exc_info=None if expected else error,
        )


def _deciding_error(error: Exception) -> Exception:
    """The one error of a group that decides what happens next: lost leadership, else anything, else a conflict."""
    if not isinstance(error, ExceptionGroup):
        return error
    leaves = [_deciding_error(inner) for inner in error.exceptions]
    return min(leaves, key=lambda leaf: (not isinstance(leaf, LeadershipLost), isinstance(leaf, Conflict)))


def _enqueuer[T](
    trigger: _Trigger[T], queue: WorkQueue[Key], conflicts: ConflictRetries
) -> Callable[[T | None, T | None], None]:
    def enqueue(old: T | None, new: T | None) -> None:
        item = new if new is not None else old
        for key in (*trigger.keys(old, new), *(conflicts.take(item) if isinstance(item, Object) else ())):
            queue.add(key)

    return enqueue
