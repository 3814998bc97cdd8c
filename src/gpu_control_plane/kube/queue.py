"""A work queue of keys: each waits at most once, is worked on by at most one worker, and is never forgotten.

A key added while it is being worked on is handed out again afterwards, so a change that arrives during a
reconcile is never missed. Order is first in, first out. The queue lives on one event loop and uses only that
loop's clock, so that a simulated loop controls it completely.
"""

import asyncio
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

from gpu_control_plane.kube.backoff import Backoff


class QueueClosed(Exception):
    """Raised by `get` once the queue is closed."""


class WorkQueue[K: Hashable]:
    """De-duplicating queue with delayed adds and a backoff for every key."""

    def __init__(
        self,
        *,
        backoff: Backoff | None = None,
        rng: random.Random | None = None,
        on_wait: Callable[[float], None] = lambda _seconds: None,
        on_depth: Callable[[int], None] = lambda _depth: None,
    ) -> None:
        self._backoff = backoff or Backoff()
        self._rng = rng or random.Random()
        self._on_wait = on_wait
        self._on_depth = on_depth
        self._waiting: OrderedDict[K, float] = OrderedDict()
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._delayed: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    def __len__(self) -> int:
        """Keys ready to be worked on now."""
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Have `key` worked on as soon as a worker is free."""
        if self._closed:
            return
        if timer := self._delayed.pop(key, None):
            timer.cancel()
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = asyncio.get_running_loop().time()
            self._on_depth(len(self._waiting))
            self._wake_one()

    def add_after(self, key: K, delay: float) -> None:
        """Have `key` worked on after `delay` seconds; of several delays the earliest counts."""
        if self._closed or key in self._waiting or key in self._again:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + max(delay, 0.0)
        planned = self._delayed.get(key)
        if planned is not None:
            if planned.when() <= due:
                return
            planned.cancel()
        self._delayed[key] = loop.call_at(due, self.add, key)

    def retry(self, key: K, after: float | None = None) -> float:
        """Have `key` worked on `after` seconds, or after its backoff, which grows with each failure in a row; returns
        the delay."""
        self._failures[key] = self._failures.get(key, 0) + 1
        delay = after if after is not None else self._backoff.delay(self._failures[key], self._rng)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure starts the backoff anew."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key; the caller must call `done` with it, whatever happens."""
        while not self._waiting:
            if self._closed:
                raise QueueClosed
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter in self._getters:
                    self._getters.remove(getter)
                elif not getter.cancelled():
                    # Woken and cancelled at once: another worker gets the wake-up.
                    self._wake_one()
                raise
        key, since = self._waiting.popitem(last=False)
        self._working.add(key)
        self._idle.clear()
        self._on_depth(len(self._waiting))
        self._on_wait(asyncio.get_running_loop().time() - since)
        return key

    def done(self, key: K) -> None:
        """The worker has finished with `key`; if it was added meanwhile, it waits again."""
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)
        if not self._working:
            self._idle.set()

    def close(self) -> None:
        """Accept no more keys and end waiting workers; keys being worked on finish."""
        self._closed = True
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        self._waiting.clear()
        self._again.clear()
        self._on_depth(0)
        while self._getters:
            self._wake_one()

    async def drained(self) -> None:
        """Wait until no key is being worked on."""
        await self._idle.wait()

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return
