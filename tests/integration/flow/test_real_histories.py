"""Short random histories on a real control plane: whatever people and hardware do, cards end where they belong."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_control_plane.agent.fleet.machines import edit_card
from gpu_control_plane.agent.simulated.machine import heal, report_xid, swap
from gpu_control_plane.api import GPUDevice, GPUNodeState, GPUPool
from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.kube import Cache
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.pools.units import is_suitable
from integration.flow.env import FlowEnv, pool_of
from waiting import until_async

CARDS = ("node-a-0000-18-00-0", "node-a-0000-2a-00-0", "node-b-0000-18-00-0")
SELECTORS: dict[str, dict[str, object]] = {
    "all": {},
    "H200": {"include": {"products": ["*H200*"]}},
    "L40S": {"include": {"products": ["*L40S*"]}},
}

ALLOCATIONS: dict[str, dict[str, object]] = {
    "whole": {"mode": "Exclusive", "mig": None, "timeSlice": None},
    "slices": {"mode": "TimeSlice", "mig": None, "timeSlice": {"replicas": 3}},
    "instances": {"mode": "MIG", "mig": {"profile": "3g.71gb"}, "timeSlice": None},
}
STRATEGIES = {"one": "Pool", "two": "Node"}

_cards = st.sampled_from(CARDS)
_steps = st.one_of(
    st.tuples(st.just("approve"), _cards, st.sampled_from(("one", "two", "none"))),
    st.tuples(st.just("ignore"), _cards, st.sampled_from(("true", ""))),
    st.tuples(st.just("break"), _cards, st.just("")),
    st.tuples(st.just("heal"), _cards, st.just("")),
    st.tuples(st.just("swap"), _cards, st.just("")),
    st.tuples(st.just("select"), st.sampled_from(("one", "two")), st.sampled_from(tuple(SELECTORS))),
    st.tuples(st.just("divide"), st.sampled_from(("one", "two")), st.sampled_from(tuple(ALLOCATIONS))),
    st.tuples(st.just("pod"), st.sampled_from(("one", "two")), st.just("")),
)


class InvariantWatch:
    """Checks every change of every object for what must never be seen, not even for a moment."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def device(self, old: GPUDevice | None, new: GPUDevice | None) -> None:
        if old is not None and new is not None and pool_of(old) and pool_of(new) and pool_of(old) != pool_of(new):
            self.broken.append(f"{new.name} went from {pool_of(old)} to {pool_of(new)} without being free in between")

    def state(self, _old: GPUNodeState | None, new: GPUNodeState | None) -> None:
        ordered = [order.inventory_id for order in new.spec.assignments] if new else []
        plugin = new.status.plugin if new else None
        served = [card for resource in (plugin.resources if plugin else ()) for card in resource.inventory_ids]
        if len(ordered) != len(set(ordered)) or len(served) != len(set(served)):
            self.broken.append(f"a card is in two pools: {ordered}, {served}")

    def pool(self, _old: GPUPool | None, new: GPUPool | None) -> None:
        for each in new.status.capacity if new else ():
            if each.used + each.reserved + each.available + each.faulted > each.total:
                self.broken.append(f"the units of {each.name} are more than there are: {each}")


@asynccontextmanager
async def watching(*caches: Cache[Any]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(cache.run()) for cache in caches]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.fixture
async def started(env: FlowEnv) -> FlowEnv:
    await env.start_controller()
    await env.add_nodes("node-a", profile="H200-141", cards=2)
    await env.add_nodes("node-b", profile="L40S", cards=1)
    for name, strategy in STRATEGIES.items():
        await env.add_pool(name, maintenance={"strategy": strategy})
    await env.devices_known(len(CARDS))
    return env


@pytest.mark.timeout(600)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_steps, min_size=3, max_size=10))
async def test_cards_end_where_they_belong(started: FlowEnv, steps: list[tuple[str, str, str]]) -> None:
    watcher = InvariantWatch()
    devices = Cache(GPUDevice, ApiSource(started.client, GPUDevice))
    states = Cache(GPUNodeState, ApiSource(started.client, GPUNodeState))
    pools = Cache(GPUPool, ApiSource(started.client, GPUPool))
    devices.on_change(watcher.device)
    states.on_change(watcher.state)
    pools.on_change(watcher.pool)
    async with watching(devices, states, pools):
        pods = [name for number, step in enumerate(steps) if (name := await _carry_out(started, number, step))]
        for name in pods:
            await started.end_pod(name)
        for card in CARDS:
            await edit_card(started.client, card, heal)
        await until_async(lambda: _settled(started), within=90, saying=f"the end of {steps}")
    assert not watcher.broken


async def _carry_out(started: FlowEnv, number: int, step: tuple[str, str, str]) -> str | None:
    """Do one thing; returns the name of the pod if it started one."""
    what, which, how = step
    match what:
        case "approve":
            await started.approve(which, None if how == "none" else how)
        case "ignore":
            await started.client.patch(GPUDevice, which, {"metadata": {"labels": {Label.IGNORE.value: how}}})
        case "break":
            await edit_card(started.client, which, lambda machine, address: report_xid(machine, address, 79))
        case "heal":
            await edit_card(started.client, which, heal)
        case "swap":
            await edit_card(started.client, which, swap)
        case "select":
            selector = SELECTORS[how] or None
            await started.client.patch(GPUPool, which, {"spec": {"deviceSelector": selector}})
        case "divide":
            await started.client.patch(GPUPool, which, {"spec": {"allocation": ALLOCATIONS[how]}})
        case "pod":
            name = f"pod-{number}"
            await started.start_pod(name, which)
            return name
    return None


async def _settled(started: FlowEnv) -> bool:
    """Every card is in the pool it is approved for, if that may have it, and in none otherwise; and cards are divided
    as their pools say."""
    pools = {name: await started.pool(name) for name in ("one", "two")}
    if any(pool.status.maintenance or pool.allocation != pool.spec.allocation.canonical for pool in pools.values()):
        return False
    orders = [order for state in (await started.states()).values() for order in state.spec.assignments]
    if any(order.allocation != pools[order.pool].spec.allocation.canonical for order in orders):
        return False
    found = await started.devices()
    return len(found) == len(CARDS) and all(
        pool_of(device) == _belongs(device, pools) and device.status.state in _settled_states(device)
        for device in found.values()
    )


def _belongs(device: GPUDevice, pools: dict[str, GPUPool]) -> str | None:
    approved = device.metadata.annotations.get(Annotation.ASSIGNMENT)
    if approved not in pools or device.metadata.labels.get(Label.IGNORE) == "true" or device.status.hardware is None:
        return None
    if not is_suitable(pools[approved].spec.allocation, device.status.hardware):
        return None
    selector = pools[approved].spec.device_selector
    wanted = selector.include.products if selector and selector.include else ()
    return approved if not wanted or any(w.strip("*") in device.status.hardware.product for w in wanted) else None


def _settled_states(device: GPUDevice) -> tuple[DeviceState, ...]:
    return (DeviceState.ASSIGNED,) if pool_of(device) else (DeviceState.UNASSIGNED,)
