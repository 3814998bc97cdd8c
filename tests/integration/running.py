"""A controller process for as long as a block of a test lasts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpu_control_plane.kube import Runtime


@asynccontextmanager
async def running(runtime: Runtime) -> AsyncIterator[asyncio.Task[None]]:
    """Run a process beside the block, and end it in good order. Whoever waits for it to do something also looks whether
    its task is done: it may have failed."""
    task = asyncio.create_task(runtime.run())
    try:
        yield task
    finally:
        runtime.stop()
        await task
