"""Waits until pods of ours have ended: what they write after a job has cleaned up would stay."""

import asyncio
import time
from typing import Final

from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Client, Selection

_POLL_SECONDS: Final = 0.5


async def await_end(client: Client, pods: Selection, timeout: float) -> int:
    """How many of them are left after `timeout` seconds, as on a node that is down."""
    deadline = time.monotonic() + timeout
    while True:
        left = len(await client.list(Pod, pods))
        if not left or time.monotonic() >= deadline:
            return left
        await asyncio.sleep(_POLL_SECONDS)
