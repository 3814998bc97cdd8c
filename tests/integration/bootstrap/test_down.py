"""The controller is down while nodes join, cards vanish and drivers break. When it is back, it needs one reconcile of
each node and as few writes as the API allows; so does a whole rack that joins at once.
"""

import asyncio
import math
from collections import Counter
from datetime import timedelta

import msgspec
import pytest

from fault_proxy import Fault, FaultProxy, Request
from gpu_control_plane import bootstrap
from gpu_control_plane.api.examples import h200, pci_address
from gpu_control_plane.api.names import Annotation, NodeCondition, Reason
from gpu_control_plane.api.nodefeature import NodeFacts
from gpu_control_plane.kube import Client, Runtime
from gpu_control_plane.kube.conditions import TRUE, find
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.pools import controller as pools
from gpu_control_plane.pools.pending_reasons import PendingReason
from integration.bootstrap.operands import Operands
from integration.inventory.machines import DEFAULTS, Machine, controllers, reconciles
from integration.running import running
from waiting import until, until_async, until_still

COMPLETE = NodeCondition.INVENTORY_COMPLETE
READY = NodeCondition.READY_FOR_POOLING
RACK = 50
NFD = "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures"
"""The NodeFeatures of all namespaces, which inventory lists before it begins."""


def settled(machine: Machine) -> dict[str, int]:
    """The fewest writes that a new node costs, by resource: objects and statuses are written apart."""
    cards = len(machine.cards(2))
    return {"gpudevices": cards, "gpudevices/status": cards, "gpunodestates": 1, "gpunodestates/status": 2}


def writes_by_kind(machine: Machine, proxy: FaultProxy, since: int = 0) -> dict[str, int]:
    """Writes about a machine by resource and subresource, from its `since`th on."""
    paths = (request.path.split("/") for request in machine.writes(proxy)[since:])
    return dict(Counter("/".join((path[4], *path[6:])) for path in paths))


async def more_machines(client: Client, machine: Machine, *names: str) -> list[Machine]:
    made = [Machine(client, f"{name}-{machine.name}") for name in names]
    for one in made:
        await one.register(ready=True)
    return made


async def test_what_happened_meanwhile_is_made_good_with_the_fewest_writes(client: Client, machine: Machine) -> None:
    names = ("new", "pulled", "bare", "swapped", "moved", "gone")
    new, pulled, bare, swapped, moved, gone = await more_machines(client, machine, *names)
    all_of_them = (pulled, bare, swapped, moved, gone)
    async with FaultProxy.before(client.config) as proxy:
        async with controllers(proxy):
            for one in all_of_them:
                await one.report(one.cards(2))
            for one in all_of_them:
                await one.until_condition(READY, Reason.READY)
                assert writes_by_kind(one, proxy) == settled(one)
            await moved.approve(1)
            await swapped.approve(1)
        before = {one.name: len(one.writes(proxy)) for one in all_of_them}

        # The controller is down.
        await new.report(new.cards(2))
        await pulled.report(pulled.cards(2)[:1])
        broken = (msgspec.structs.replace(card, uuid=None, memory_mib=None, mig=None) for card in bare.cards(2))
        await bare.report(broken, facts=NodeFacts(bus_cards=2))
        other = msgspec.structs.replace(h200(swapped.name, 1, 2), uuid="GPU-other")
        await swapped.report((h200(swapped.name, 0, 2), other))
        card = h200(moved.name, 1, 2)
        elsewhere = msgspec.structs.replace(card, pci=msgspec.structs.replace(card.pci, address=pci_address(5)))
        await moved.report((h200(moved.name, 0, 2), elsewhere))
        await gone.unregister()

        async with controllers(proxy):
            await new.until_condition(READY, Reason.READY)
            await bare.until_condition(READY, Reason.DRIVER_NOT_READY)
            await gone.until_condition(READY, Reason.INVENTORY_INCOMPLETE)
            await until_async(lambda: _has(pulled, {pci_address(0)}))
            await until_async(lambda: _has(moved, {pci_address(0), pci_address(5)}))
            await until_async(lambda: _is(swapped, 1, "GPU-other"))
            await _settled(proxy, new, *all_of_them)
            assert writes_by_kind(new, proxy) == settled(new)
            since = {one.name: writes_by_kind(one, proxy, before[one.name]) for one in all_of_them}
        # Started once more, it writes nothing.
        made = _written(proxy, new, *all_of_them)
        async with controllers(proxy):
            await _settled(proxy, new, *all_of_them)
        assert _written(proxy, new, *all_of_them) == made

    assert since[pulled.name] == {"gpudevices": 1, "gpunodestates/status": 1}
    assert since[bare.name] == {"gpunodestates/status": 2}
    assert since[swapped.name] == {"gpudevices": 1, "gpudevices/status": 1, "gpunodestates/status": 1}
    # The object at the new address, its annotations, its hardware; the old object is deleted.
    assert since[moved.name] == {"gpudevices": 3, "gpudevices/status": 1, "gpunodestates/status": 1}
    assert since[gone.name] == {"gpunodestates/status": 2}
    devices = await moved.devices()
    assert devices[pci_address(5)].metadata.annotations[Annotation.ASSIGNMENT] == "training"
    assert Annotation.ASSIGNMENT not in (await swapped.device(1)).metadata.annotations


async def test_a_node_does_not_become_ready_by_what_was_written_before_the_restart(
    client: Client, machine: Machine, operands: Operands
) -> None:
    """Its agent was lost. While the controller is down it comes back, and the driver has lost a card. Inventory starts
    late, since it waits for Node Feature Discovery: until it has written, the status still calls the inventory
    complete."""
    slow, long_ago = bootstrap.Settings(loss_after=timedelta(hours=1)), utc_now() - timedelta(days=1)
    async with FaultProxy.before(client.config) as proxy:
        async with controllers(proxy, DEFAULTS, slow):
            await machine.report(machine.cards(2))
            await operands.start("agent", since=long_ago)
            await machine.until_condition(READY, Reason.READY)
            await operands.is_ready("agent", False, since=long_ago)
            await machine.until_condition(READY, Reason.AGENT_NOT_READY)
        before = len(machine.writes(proxy))

        # The controller is down.
        await machine.report(machine.cards(2)[:1], bus=2)
        await operands.is_ready("agent", True, since=long_ago)

        proxy.plant(Fault(when=lambda request: request.path == NFD, status=503, times=10_000))
        async with controllers(proxy, DEFAULTS, slow):
            await machine.until_condition(COMPLETE, Reason.CARDS_MISSING)
            await machine.until_condition(READY, Reason.INVENTORY_INCOMPLETE)
            await _settled(proxy, machine)
    assert writes_by_kind(machine, proxy, before) == {"gpunodestates/status": 2}


async def test_no_card_is_issued_by_what_was_written_before_the_restart(client: Client, machine: Machine) -> None:
    """While the controller is down a card is approved and another is lost. Pools look first, since inventory waits for
    Node Feature Discovery: the node is still called ready."""
    pool = await machine.add_pool(2)
    async with FaultProxy.before(client.config) as proxy:
        async with controllers(proxy, beside=pools.build):
            await _until_approvals_are_awaited(machine)
        before = len(machine.writes(proxy))

        # The controller is down.
        await machine.approve(0, pool)
        await machine.report(machine.cards(2)[:1], bus=2)

        proxy.plant(Fault(when=lambda request: request.path == NFD, status=503, times=10_000))
        async with controllers(proxy, beside=pools.build):
            await machine.until_condition(READY, Reason.INVENTORY_INCOMPLETE)
            await machine.until_pending(PendingReason.NODE_NOT_READY, PendingReason.APPROVAL)
            await _settled(proxy, machine)
            # Inventory, bootstrap and pools each write their part, the approved card says why it waits, and no card is
            # ordered.
            assert writes_by_kind(machine, proxy, before) == {"gpunodestates/status": 3, "gpudevices/status": 1}
            await machine.report(machine.cards(2))
            await until_async(machine.orders, saying="the card is issued once the node is whole")
    assert await machine.orders() == [pci_address(0)]


async def test_a_report_that_is_taken_back_is_observed_before_a_card_is_issued(
    client: Client, machine: Machine
) -> None:
    """While the controllers are down the agent reports a lost card, and then the card is back: the report says what it
    said before, under a higher number. Pools alone wait, and go on as soon as inventory has read it."""
    pool = await machine.add_pool(2)
    async with FaultProxy.before(client.config) as proxy:
        async with controllers(proxy, beside=pools.build):
            await _until_approvals_are_awaited(machine)
        before = len(machine.writes(proxy))
        await machine.report(machine.cards(2)[:1], bus=2)
        await machine.report(machine.cards(2))
        await machine.approve(0, pool)
        alone = Runtime("test-pools", config=client.config, elect=False, status_port=None)
        pools.build(alone)
        async with running(alone):
            await _pools_have_looked(alone)
            assert await machine.orders() == []
        async with controllers(proxy, beside=pools.build):
            await until_async(machine.orders, saying="the card is issued")
            await _settled(proxy, machine)
    # The number of the report; the claim; the order, and the card among the assigned ones.
    assert writes_by_kind(machine, proxy, before) == {
        "gpunodestates": 1,
        "gpunodestates/status": 2,
        "gpudevices/status": 1,
    }


@pytest.mark.parametrize("late", ["gpu-inventory", "gpu-bootstrap"])
async def test_no_card_is_issued_while_a_writer_of_the_status_is_late(
    client: Client, machine: Machine, late: str
) -> None:
    """The driver goes. Inventory has not written that, or it has and bootstrap has not withdrawn ReadyForPooling: in
    both windows the node is still called ready, and a card that is approved now must not be ordered."""
    pool = await machine.add_pool(2)
    async with (
        FaultProxy.before(client.config) as proxy,
        controllers(proxy, beside=pools.build) as runtime,
    ):
        await _until_approvals_are_awaited(machine)
        await _settled(proxy, machine)
        before = len(proxy.requests)

        def is_held_up(request: Request) -> bool:
            return _writes_status(request, machine, late)

        held_up = proxy.plant(Fault(when=is_held_up, status=503, times=math.inf))
        await machine.report(machine.cards(2), facts=NodeFacts(bus_cards=2))
        await until(lambda: any(map(is_held_up, proxy.requests[before:])), saying=f"{late} has tried to write")
        await machine.approve(0, pool)
        await _pools_have_looked(runtime)
        state = await machine.state()
        assert state is not None
        assert (state.status.driver is None) == (late == "gpu-bootstrap")
        held = find(state.status.conditions, READY)
        assert held is not None
        assert held.status == TRUE
        assert (await machine.orders(), (await machine.device(0)).status.pool_ref) == ([], None)
        held_up.times = 0
        await machine.until_condition(READY, Reason.DRIVER_NOT_READY)
        assert await machine.orders() == []
        await machine.report(machine.cards(2))
        await until_async(machine.orders, saying="the card is issued once the driver is back")


def _writes_status(request: Request, machine: Machine, manager: str) -> bool:
    about = request.path.endswith(f"/gpunodestates/{machine.name}/status")
    return request.is_write and about and request.query.get("fieldManager") == manager


async def _until_approvals_are_awaited(machine: Machine) -> None:
    """A node with two cards that are ready to join a pool."""
    await machine.report(machine.cards(2))
    await machine.until_condition(READY, Reason.READY)
    await machine.are_healthy()
    await machine.until_pending(PendingReason.APPROVAL, PendingReason.APPROVAL)


async def _pools_have_looked(runtime: Runtime) -> None:
    looks = reconciles(runtime, "pools-nodes")
    await until(looks, saying="pools have looked")
    await until_still(lambda: int(looks()))


async def test_a_rack_that_joins_at_once_costs_each_node_no_more_than_one_alone(
    client: Client, machine: Machine
) -> None:
    rack = await more_machines(client, machine, *(f"n{number}" for number in range(RACK)))
    async with FaultProxy.before(client.config) as proxy, controllers(proxy):
        await asyncio.gather(*(one.report(one.cards(2)) for one in rack))
        for one in rack:
            await one.until_condition(READY, Reason.READY)
        await _settled(proxy, *rack)
        counts = Counter(str(writes_by_kind(one, proxy)) for one in rack)
    assert counts == {str(settled(machine)): RACK}


async def _has(machine: Machine, addresses: set[str]) -> bool:
    state = await machine.state()
    listed = {device.pci_address for device in state.status.devices} if state is not None else set()
    return set(await machine.devices()) == listed == addresses


async def _is(machine: Machine, index: int, uuid: str) -> bool:
    state = await machine.state()
    return state is not None and state.status.devices[index].uuid == uuid


def _written(proxy: FaultProxy, *machines: Machine) -> int:
    return sum(len(one.writes(proxy)) for one in machines)


async def _settled(proxy: FaultProxy, *machines: Machine) -> None:
    """Only the writes about these machines count: other tests leave nodes in the same cluster."""
    await until_still(lambda: _written(proxy, *machines))
