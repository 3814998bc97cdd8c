"""Answers that hold for a while, at most so many of them, and asked for once however many wait for the same one."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable

import msgspec


class _Held[V](msgspec.Struct):
    answer: V
    until: float


class ExpiringAnswers[K: Hashable, V]:
    """A failure to get an answer reaches all who wait for it, and is not remembered."""

    def __init__(self, *, most: int, now: Callable[[], float]) -> None:
        self._most = most
        self._now = now
        self._held: OrderedDict[K, _Held[V]] = OrderedDict()
        self._asked: dict[K, asyncio.Future[V]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def known(self, key: K) -> V | None:
        held = self._held.get(key)
        return held.answer if held is not None and held.until > self._now() else None

    async def get(self, key: K, ask: Callable[[], Awaitable[V]], seconds: Callable[[V], float]) -> V:
        """The answer that is known, or that `ask` gives, which then holds for so many `seconds`."""
        held = self._held.get(key)
        if held is not None and held.until > self._now():
            return held.answer
        if (asked := self._asked.get(key)) is not None:
            return await asyncio.shield(asked)
        asked = self._asked[key] = asyncio.ensure_future(ask())
        asked.add_done_callback(lambda done: self._remember(key, done, seconds))
        # Whoever asked first may leave: the others still wait.
        return await asyncio.shield(asked)

    def forget(self, key: K) -> None:
        self._held.pop(key, None)

    def _remember(self, key: K, done: asyncio.Future[V], seconds: Callable[[V], float]) -> None:
        del self._asked[key]
        if done.cancelled() or done.exception() is not None:
            return
        answer = done.result()
        self._held[key] = _Held(answer, self._now() + seconds(answer))
        self._held.move_to_end(key)
        while len(self._held) > self._most:
            self._held.popitem(last=False)
