"""Examines a running cluster: reads it, asks the checks, and looks again at what may be over in a moment."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.doctor.check import Check
from gpu_control_plane.doctor.checks import CHECKS
from gpu_control_plane.doctor.examination import Examination, confirmed, examine, sources_of, to_look_again
from gpu_control_plane.doctor.reading import Progress, read_snapshot
from gpu_control_plane.doctor.snapshot import Snapshot
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.times import utc_now

SETTLING_SECONDS: Final = 5.0
"""Between two looks: a leader renews its lease every 4 s, and agents and controllers answer within a second or two."""


class Examined(msgspec.Struct, frozen=True):
    """What was found, and in what."""

    examination: Examination
    snapshot: Snapshot


async def examine_cluster(
    client: Client,
    namespace: str,
    checks: Sequence[Check] = CHECKS,
    *,
    progress: Progress = lambda _source: None,
    looking_again: Callable[[int], None] = lambda _findings: None,
    now: Callable[[], datetime] = utc_now,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Examined:
    """The answers of these checks; our programs run in `namespace`. Where nothing is suspicious it is one look;
    `looking_again` is told of a second."""
    snapshot = await read_snapshot(client, now(), namespace, sources=sources_of(checks), progress=progress)
    first = examine(snapshot, checks)
    again = to_look_again(first, checks)
    if not again:
        return Examined(first, snapshot)
    looking_again(len(again))
    await sleep(SETTLING_SECONDS)
    later = await read_snapshot(client, now(), namespace, sources=sources_of(again), before=snapshot)
    return Examined(confirmed(first, examine(later, again), again), later)
