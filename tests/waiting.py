"""Waiting for a condition instead of sleeping and hoping."""

import asyncio
import time
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], object], *, within: float = 20.0, saying: str = "") -> None:
    """Return when `condition()` is true; fail after `within` seconds."""

    async def ask() -> object:
        return condition()

    await until_async(ask, within=within, saying=saying)


async def until_async(condition: Callable[[], Awaitable[object]], *, within: float = 20.0, saying: str = "") -> None:
    deadline = time.monotonic() + within
    while not await condition():
        assert time.monotonic() < deadline, f"not within {within:g} s: {saying or condition}"
        await asyncio.sleep(0.02)


async def until_still(count: Callable[[], int], *, still: float = 1.0, within: float = 60.0, saying: str = "") -> None:
    """Return when `count()` has been the same for `still` seconds."""
    last, since = count(), time.monotonic()

    def unchanged() -> bool:
        nonlocal last, since
        if (now := count()) != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since >= still

    await until(unchanged, within=within, saying=saying or "it never comes to rest")
