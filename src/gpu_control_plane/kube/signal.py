"""Wakes controllers for a reason that no cache shows: a Lease has run out, an index has changed, a device has spoken.

The part of a process that knows fires its `Signal` with the keys concerned; a controller watches the signal as it
watches a cache (controller-runtime's `source.Channel`). That way no part has to know which others it wakes.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from gpu_control_plane.kube.objects import Key


class Keyed(Protocol):
    @property
    def key(self) -> Key: ...


class Watchable[T](Protocol):
    """What a controller, or a signal, can watch: a `Cache` or a `Signal`."""

    def on_change(self, handler: Callable[[T | None, T | None], None]) -> None:
        """Call `handler(old, new)` after every change."""

    def remove_handler(self, handler: Callable[[T | None, T | None], None]) -> None:
        """Call it no longer."""

    async def synced(self) -> None:
        """Wait until there is something to work with."""


class Fired(msgspec.Struct, frozen=True):
    """What handlers of a signal get as `new`: a signal says which key, and knows no older value."""

    key: Key


class Signal:
    """A source of keys that a part of the process fires itself.

    Handlers are called before `fire` returns, in the order in which they subscribed, so an index that subscribes before
    a controller is up to date when the controller asks it. With an `interval` they are called at most once in so many
    seconds: what is fired meanwhile is delivered together at the end, each key once.

    Nothing is kept for a controller that does not run: when it starts, it works on everything that its caches show.
    """

    def __init__(self, name: str, *, interval: float = 0.0) -> None:
        self.name = name
        self.key = Key(name)
        """What is fired where no other key is named: for signals whose readers do all of their work at once."""
        self._interval = interval
        self._handlers: list[Callable[[Fired | None, Fired | None], None]] = []
        self._waiting: dict[Key, None] = {}
        self._closed_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def fire(self, *keys: Key) -> None:
        """Wake those who watch for these keys, or for the signal's own."""
        self._waiting.update(dict.fromkeys(keys or (self.key,)))
        if not self._interval:
            self._deliver()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._closed_until:
                self._deliver()
            else:
                self._timer = loop.call_at(self._closed_until, self._deliver)

    def watch[T](
        self,
        source: Watchable[T],
        concerns: Callable[[T], Iterable[Key]] | None = None,
        when: Callable[[T | None, T | None], bool] = lambda _old, _new: True,
    ) -> "Signal":
        """Fire at changes of `source` that `when` accepts: the keys that `concerns` names for both sides of the change,
        or without it the signal's own."""

        def changed(old: T | None, new: T | None) -> None:
            if not when(old, new):
                return
            if concerns is None:
                self.fire()
            elif keys := {key for side in (old, new) if side is not None for key in concerns(side)}:
                self.fire(*sorted(keys, key=str))

        source.on_change(changed)
        return self

    def on_change(self, handler: Callable[[Fired | None, Fired | None], None]) -> None:
        """Call `handler(None, fired)` for every key that is fired from now on."""
        self._handlers.append(handler)

    def remove_handler(self, handler: Callable[[Fired | None, Fired | None], None]) -> None:
        self._handlers.remove(handler)

    async def synced(self) -> None:
        """There is nothing to wait for."""

    def _deliver(self) -> None:
        if self._interval:
            self._timer = None
            self._closed_until = asyncio.get_running_loop().time() + self._interval
        keys, self._waiting = self._waiting, {}
        for key in keys:
            fired = Fired(key)
            for handler in tuple(self._handlers):
                handler(None, fired)
