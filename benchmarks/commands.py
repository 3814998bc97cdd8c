"""How long people wait for `kubectl gpu`: the first line of an answer, and a table of a whole fleet.

Each measurement is the best of several, since noise only ever slows; the processor time beside it says how much of it
is our own work.
"""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from benchmarks.fleet import CARDS_PER_NODE, cluster_with
from benchmarks.report import Measurement, at_most, progress

_ROUNDS = 5
_FIRST_LINE_SECONDS = 0.3
_FLEET_SECONDS = 3.0


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a command."""

    first_line: float
    seconds: float
    cpu_seconds: float
    lines: int


async def measure(nodes: int) -> list[Measurement]:
    cards = nodes * CARDS_PER_NODE
    async with cluster_with(nodes) as cluster:
        help_ = await _best("--help")
        few = await _best("devices", "--node", "node-0000", "--kubeconfig", str(cluster.kubeconfig))
        table = await _best("devices", "--kubeconfig", str(cluster.kubeconfig))
        json = await _best("devices", "-o", "json", "--kubeconfig", str(cluster.kubeconfig))
        status = await _best("status", "--kubeconfig", str(cluster.kubeconfig))
    if table.lines != cards + 1:
        raise RuntimeError(f"{table.lines} lines were printed for {cards} cards")
    found = (
        ("kubectl gpu --help", help_.first_line, _FIRST_LINE_SECONDS, help_),
        ("first line of the cards of one node", few.first_line, _FIRST_LINE_SECONDS, few),
        (f"table of {cards:,} cards", table.seconds, _FLEET_SECONDS, table),
        (f"JSON of {cards:,} cards", json.seconds, 2 * _FLEET_SECONDS, json),
        (f"status of {cards:,} cards", status.seconds, 2 * _FLEET_SECONDS, status),
    )
    return [at_most(name, value, "s", limit, run=msgspec.to_builtins(run)) for name, value, limit, run in found]


async def _best(*arguments: str) -> Run:
    progress(f"kubectl gpu {' '.join(arguments[:3])}")
    runs = [await asyncio.to_thread(_run, arguments) for _ in range(_ROUNDS)]
    return min(runs, key=lambda run: run.seconds)


def _run(arguments: tuple[str, ...]) -> Run:
    program = Path(sys.executable).with_name("kubectl-gpu")
    before, began = os.times(), time.monotonic()
    with subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        first_line = time.monotonic() - began
        lines = bool(first) + sum(1 for _ in process.stdout)
        process.wait()
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Run(first_line=first_line, seconds=time.monotonic() - began, cpu_seconds=cpu, lines=lines)
