"""A local copy of the objects of a kind, kept up to date by a watch and shared by any number of controllers.

The copy survives everything the network does: a broken watch resumes where it stopped; an expired one, or one whose
API server was away, is listed again and compared, and what vanished meanwhile is reported as deleted. While the API
server is away the last known state stays readable. A server that comes back may have been restored from a backup: the
list replaces everything, also by older versions.
"""

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing

from msgspec.structs import replace

from gpu_control_plane.kube.errors import (
    CannotWatch,
    CredentialsError,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    WatchBroken,
)
from gpu_control_plane.kube.expectations import Expectations
from gpu_control_plane.kube.gc_pause import gc_paused
from gpu_control_plane.kube.logs import get_logger
from gpu_control_plane.kube.metrics import Metrics
from gpu_control_plane.kube.objects import Key, Object
from gpu_control_plane.kube.recovery import Recovery
from gpu_control_plane.kube.store import Store
from gpu_control_plane.kube.watch import SLICE, Batch, Source

_log = get_logger("kube.cache")


class Cache[T: Object]:
    """The objects of a kind. Reads are immediate and never fail; `synced` says when they are complete."""

    def __init__(
        self,
        kind: type[T],
        source: Source[T],
        *,
        selects: Callable[[T], bool] = lambda _new: False,
        metrics: Metrics | None = None,
        recovery: Recovery | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.kind = kind
        self._source = source
        self._metrics = metrics or Metrics()
        self._rng = rng or random.Random()
        self._recovery = recovery or Recovery(rng=self._rng)
        self._seat = self._recovery.seat()
        self._store: Store[T] = Store()
        self._handlers: list[Callable[[T | None, T | None], None]] = []
        self._synced = asyncio.Event()
        self._synced_or_unavailable = asyncio.Event()
        self._since: str | None = None
        self._expectations: Expectations[T] = Expectations(selects)
        self._watch_error: KubeError | None = None
        self._received = False
        self._followed = False

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[T]:
        return iter(self._store)

    def get(self, name: str, namespace: str | None = None) -> T | None:
        return self._store.get(Key(name, namespace))

    def at(self, key: Key) -> T | None:
        return self._store.get(key)

    def by_index(self, index: str, value: str) -> list[T]:
        """The objects that an index files under `value`."""
        return self._store.by_index(index, value)

    def count(self, index: str, value: str) -> int:
        """How many objects an index files under `value`, without gathering them."""
        return self._store.count(index, value)

    def index(self, name: str, function: Callable[[T], Iterable[str]]) -> None:
        """File objects under the values that `function` gives for them."""
        self._store.add_index(name, function)

    def on_change(self, handler: Callable[[T | None, T | None], None]) -> None:
        """Call `handler(old, new)` after every change; what exists already is reported as new at once."""
        self._handlers.append(handler)
        for item in list(self._store):
            handler(None, item)

    def remove_handler(self, handler: Callable[[T | None, T | None], None]) -> None:
        self._handlers.remove(handler)

    def learn(self, answer: T) -> None:
        """Show an object as the API server has just answered it, so that the next decision sees it without waiting for
        the watch. An answer that the watch or a later answer has overtaken changes nothing.

        An object that is not held is shown only if `selects` is certain of it: the watch must come to report it.
        """
        if self._expectations.accept(answer, self._store.get(answer.key)):
            self._hold(answer)

    def learn_deletion(self, key: Key, uid: str) -> None:
        """Show no more an object that the API server has just answered to be gone, whatever the watch still brings."""
        held = self._store.get(key)
        if held is not None and held.metadata.uid == uid:
            self._expectations.accept_deletion(held)
            self._forget(key)

    @property
    def expected_deletions(self) -> int:
        """How many deletions this cache shows that its watch has not reported yet."""
        return self._expectations.deletions

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    async def synced(self) -> None:
        """Wait until everything that existed when the watch began has been seen."""
        await self._synced.wait()

    async def synced_or_unavailable(self) -> None:
        """Wait until everything has been seen, or it is known that waiting will not help: no such kind, no permission.

        For kinds that may be absent: a decision made without waiting would be made again a moment later.
        """
        await self._synced_or_unavailable.wait()

    @property
    def watch_error(self) -> KubeError | None:
        """Why the watch is not running at the moment, if it is not."""
        return self._watch_error

    async def run(self, sync_timeout: float = math.inf) -> None:
        """Keep the copy up to date until cancelled.

        With a finite `sync_timeout`, `CannotWatch` is raised when the first sync fails for that many seconds, or at
        once for what waiting cannot cure (no such kind, no permission). After the first sync, every failure is waited
        out.
        """
        deadline = asyncio.get_running_loop().time() + sync_timeout
        with self._seat:
            await self._keep_following(deadline)

    async def _keep_following(self, deadline: float) -> None:
        failures = expired = 0
        why = "initial"
        while True:
            self._metrics.watch_starts.labels(self._resource, why).inc()
            self._received = self._followed = False
            try:
                await self._follow()
                failures, why = (0 if self._received else failures + 1), "resume"
                if failures:
                    # Closed without a single event: not an error, but no reason to reconnect at once either.
                    await asyncio.sleep(self._recovery.backoff.delay(failures, self._rng))
            except Gone as error:
                # Too old to resume: everything is listed again and compared with what we hold, at once, unless the
                # server has said so before and there was nothing to follow in between.
                self._since, why = None, "expired"
                expired = 1 if self._followed else expired + 1
                self._seat.answered()
                if expired > 1:
                    self._log_failure(error, expired)
                    await asyncio.sleep(self._recovery.backoff.delay(expired - 1, self._rng))
            except KubeError as error:
                failures, why = (1 if self._received else failures + 1), "error"
                self._watch_error = error
                if _is_permanent(error):
                    self._synced_or_unavailable.set()
                if not self.is_synced and _gives_up(error, deadline):
                    raise CannotWatch(f"cannot watch {self._resource}: {error}; {_advice(error)}") from error
                self._log_failure(error, failures)
                await self._pause(error, failures)

    async def _follow(self) -> None:
        if self._since is not None:
            await self._take_all()
            return
        self._expectations.begin_list(self._store.keys())
        with gc_paused() as collection:
            await self._take_all(on_synced=collection.resume)

    async def _take_all(self, on_synced: Callable[[], None] = lambda: None) -> None:
        async with aclosing(self._source.changes(self._since)) as batches:
            async for batch in batches:
                self._take(batch)
                if batch.synced:
                    await self._finish_sync(batch)
                    on_synced()

    def _take(self, batch: Batch[T]) -> None:
        if not self._received:
            self._received = True
            self._seat.answered()
        self._watch_error = None
        for item, deleted in batch.upserts_and_deletes:
            if deleted:
                if not self._expectations.overtakes_deletion(item):
                    self._forget(item.key)
            elif not self._expectations.overtakes(item, self._store.get(item.key)):
                self._hold(item)
        for key in batch.unreadable:
            self._expectations.exists(key)
        if not self._expectations.listing and batch.resource_version:
            self._followed = True
            self._since = batch.resource_version
            self._expectations.watched_to(batch.resource_version)
        self._metrics.cache_objects.labels(self._resource).set(len(self._store))

    async def _finish_sync(self, batch: Batch[T]) -> None:
        """Everything that exists has arrived: what was not among it is gone."""
        for count, key in enumerate(self._expectations.complete_list(batch.resource_version), start=1):
            held = self._store.get(key)
            if held is not None and self._expectations.is_gone(held):
                self._forget(key)
            if count % SLICE == 0:
                await asyncio.sleep(0)
        self._expectations.end_list()
        self._since = batch.resource_version
        self._metrics.cache_synced.labels(self._resource).set(1)
        self._metrics.cache_objects.labels(self._resource).set(len(self._store))
        self._synced.set()
        self._synced_or_unavailable.set()

    def _hold(self, item: T) -> None:
        held = self._store.get(item.key)
        if held is not None and not self._expectations.replaces(held, item):
            return
        self._store.put(item)
        for handler in self._handlers:
            handler(held, item)

    def _forget(self, key: Key) -> None:
        old = self._store.remove(key)
        if old is not None:
            for handler in self._handlers:
                handler(old, None)

    @property
    def _resource(self) -> str:
        return self.kind.resource.qualified_name

    async def _pause(self, error: KubeError, failures: int) -> None:
        """Wait until this watch is to try again."""
        if not _is_away(error):
            # The server is there. On top of what it asks for: all whom it refused were told the same.
            self._seat.answered()
            asked = error.retry_after if isinstance(error, TooManyRequests) else None
            backoff = self._recovery.backoff
            # What waiting does not cure is asked for rarely.
            patient = replace(backoff, jitter=0.5) if _is_permanent(error) else backoff
            await asyncio.sleep((asked or 0.0) + patient.delay(failures, self._rng))
        elif self._received:
            await asyncio.sleep(self._recovery.backoff.delay(1, self._rng))
        else:
            # It did not come back at once. A server that was away has forgotten which changes led to its state, and
            # one that was restored from a backup has had others: there is nothing to resume from.
            self._since = None
            await self._seat.turn()

    def _log_failure(self, error: KubeError, failures: int) -> None:
        """Once when it starts, then at every doubling: an hour without an API server must not fill the log."""
        if failures & (failures - 1) == 0:
            advice = _advice(error)
            _log.warning("watch interrupted", resource=self._resource, why=str(error), failures=failures, advice=advice)


def _gives_up(error: KubeError, deadline: float) -> bool:
    """Whether a process that has not started yet should give up, which it does at `deadline` at the latest."""
    return deadline < math.inf and (_is_permanent(error) or asyncio.get_running_loop().time() >= deadline)


def _is_away(error: KubeError) -> bool:
    """Whether there was no answer, or only that the server cannot give one."""
    return isinstance(error, Unreachable | WatchBroken | ServerError)


def _is_permanent(error: KubeError) -> bool:
    match error:
        case Forbidden() | Unauthorized() | CredentialsError():
            return True
        case NotFound():
            return error.resource_missing
        case _:
            return False


def _advice(error: KubeError) -> str:
    match error:
        case NotFound() if error.resource_missing:
            return "install its CRD"
        case Forbidden():
            return "grant list and watch on it"
        case Unauthorized() | CredentialsError():
            return "check the credentials in the kubeconfig"
        case _:
            return "it is tried again by itself"
