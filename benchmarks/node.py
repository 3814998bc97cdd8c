"""The agent on a real node: what it takes while nothing happens, and how long orders and pods wait for it."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from datetime import datetime

import msgspec
from prometheus_client.samples import Sample

from benchmarks import node_allocate, node_orders, node_scrape
from benchmarks.node_env import CARDS, NodeEnv, node_env
from benchmarks.processes import memory, python_environ
from benchmarks.report import Measurement, at_most, progress
from gpu_control_plane.kube.logs import configure_logs

_MIB = 2**20
_READS = {"get", "list", "watch"}
_SETTLE_SECONDS = 20.0
_STARTS = 3
_BESIDE = "other work on this machine is unknown"
_IMPORTS = {
    "bare Python": "pass",
    "Python with grpc and aiohttp imported": "import grpc, aiohttp",
    "Python with all of the agent imported": (
        "from gpu_control_plane.agent.footprint import import_sparingly; import_sparingly()\n"
        "from gpu_control_plane.kube import main; from gpu_control_plane.agent.node import process"
    ),
}


async def measure(changes: int, calls: int, seconds: float) -> list[Measurement]:
    configure_logs("warning")
    everything = range(CARDS)
    async with node_env() as env:
        await env.order(everything)
        await env.kubelet_offers(everything)
        started = await _starts(env)
        resident = await _memory(env)
        idle = await _idle(env, seconds)
        orders = await node_orders.measure(env, changes)
        allocate = await node_allocate.measure(env, calls)
        after = env.agent.memory()
    scrape = await node_scrape.measure()
    memory_row = at_most(
        f"agent with {CARDS} cards, resident",
        resident["Rss"] / _MIB,
        "MiB",
        60,
        **_in_mib("settled", resident),
        **_in_mib("after all measurements", after),
        **{name: round(await _imported(code) / _MIB, 1) for name, code in _IMPORTS.items()},
    )
    return [memory_row, *idle, *orders, *allocate, *scrape, started]


async def _starts(env: NodeEnv) -> Measurement:
    """From the start of the process, with orders there already, as after a reboot."""
    registered, offered = [], []
    for _ in range(_STARTS):
        await env.stop_agent()
        await env.kubelet_offers(())
        seen = len(env.log.read_bytes())
        wall, began = time.time(), time.perf_counter()
        await env.start_agent()
        await env.kubelet_offers(range(CARDS))
        offered.append(time.perf_counter() - began)
        registered.append(_registered_at(env.log.read_bytes()[seen:]) - wall)
    return at_most(
        f"start of the process to registered with the kubelet, best of {_STARTS}",
        min(registered),
        "s",
        2,
        registered=registered,
        kubelet_offers_all_cards=offered,
        load=os.getloadavg()[0],
        beside=_BESIDE,
    )


def _registered_at(log: bytes) -> float:
    lines = (msgspec.json.decode(line) for line in log.splitlines() if line.startswith(b"{"))
    return next(
        datetime.fromisoformat(line["timestamp"]).timestamp() for line in lines if line["event"] == "registered"
    )


async def _memory(env: NodeEnv) -> dict[str, int]:
    progress(f"settling for {_SETTLE_SECONDS:g} s")
    await asyncio.sleep(_SETTLE_SECONDS)
    await env.agent.samples()  # a running agent is scraped
    return env.agent.memory()


async def _imported(code: str) -> int:
    """Bytes that a Python takes which has only imported something."""
    program = f"{code}\nprint(flush=True)\ninput()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program),
        env=python_environ(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    await process.stdout.readline()
    found = memory(process.pid)["Rss"]
    await process.communicate(b"\n")
    return found


async def _idle(env: NodeEnv, seconds: float) -> list[Measurement]:
    before = _requests(await env.agent.samples())
    cpu, began = env.agent.cpu_seconds(), time.monotonic()
    progress(f"idle for {seconds:g} s")
    await asyncio.sleep(seconds)
    used, elapsed = env.agent.cpu_seconds() - cpu, time.monotonic() - began
    after = _requests(await env.agent.samples())
    grown = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
    writes = sum(count for (verb, *_), count in grown.items() if verb not in _READS)
    requests = {" ".join(key): count for key, count in grown.items()}
    return [
        at_most(
            "idle agent, CPU a minute",
            used / elapsed * 60,
            "s",
            1,
            seconds=elapsed,
            load=os.getloadavg()[0],
            beside=_BESIDE,
        ),
        at_most(f"idle agent, writes in {seconds:g} s", writes, "", 0, **requests),
    ]


def _requests(samples: Sequence[Sample]) -> dict[tuple[str, str, str], float]:
    """Requests by verb, kind and the code of the answer."""
    return {
        (sample.labels["verb"], sample.labels["resource"], sample.labels["code"]): sample.value
        for sample in samples
        if sample.name == "kube_api_requests_total"
    }


def _in_mib(when: str, found: dict[str, int]) -> dict[str, float]:
    return {f"{when}, {name}": round(found[name] / _MIB, 1) for name in ("Rss", "Pss", "Private_Dirty")}
