"""Waiting for a condition instead of sleeping and hoping."""

import asyncio
import time
from collections.abc import Awaitable, Callable

_LOOKS = 30


async def until(condition: Callable[[], object], *, within: float = 60.0, saying: str = "") -> None:
    """Return when `condition()` is true; fail after `within` seconds."""

    async def ask() -> object:
        return condition()

    await until_async(ask, within=within, saying=saying)


async def until_async(condition: Callable[[], Awaitable[object]], *, within: float = 60.0, saying: str = "") -> None:
    """Return when what `condition()` gives is true; it is asked once more after `within` seconds, and that fails."""
    deadline = time.monotonic() + within
    late = False
    while not await condition():
        assert not late, f"not within {within:g} s: {saying or condition}"
        await asyncio.sleep(0.02)
        late = time.monotonic() >= deadline


async def until_still(count: Callable[[], int], *, still: float = 2.0, within: float = 60.0, saying: str = "") -> None:
    """Return when `count()` has been the same for `still` seconds, twice as long as anything is put off."""
    last, since, looks = count(), time.monotonic(), 0

    def unchanged() -> bool:
        nonlocal last, since, looks
        looks += 1
        if (now := count()) != last:
            last, since, looks = now, time.monotonic(), 0
        # Where the whole machine was held up, no process could have changed anything.
        return time.monotonic() - since >= still and looks >= _LOOKS

    await until(unchanged, within=within, saying=saying or "it never comes to rest")
