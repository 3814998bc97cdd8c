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
