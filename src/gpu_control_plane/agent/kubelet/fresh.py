"""Many askers, few calls: everybody who asks while a call is under way shares the next one.

An answer always comes from a call that began after it was asked for: who has just changed something and then looks
must not be shown the time before.
"""

import asyncio
from collections.abc import Awaitable, Callable


class Fresh[T]:
    """Shares the calls of one function, which begin at least `pause` seconds apart."""

    def __init__(self, function: Callable[[], Awaitable[T]], pause: float) -> None:
        self._function = function
        self._pause = pause
        self._one_at_a_time = asyncio.Lock()
        self._begun = 0
        self._finished: tuple[int, asyncio.Future[T]] | None = None
        self._not_before = 0.0

    async def get(self) -> T:
        """The answer of a call that begins from now on, or its failure."""
        begun_before = self._begun
        async with self._one_at_a_time:
            if self._finished is None or self._finished[0] <= begun_before:
                self._finished = await self._call()
            return self._finished[1].result()

    async def _call(self) -> tuple[int, asyncio.Future[T]]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._not_before - loop.time()))
        self._not_before = loop.time() + self._pause
        self._begun += 1
        outcome: asyncio.Future[T] = loop.create_future()
        try:
            outcome.set_result(await self._function())
        except Exception as error:  # noqa: BLE001 - raised again for each who asked
            outcome.set_exception(error)
        return self._begun, outcome
