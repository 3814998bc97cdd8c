"""From a report to objects on a real API server, with as few writes as it takes."""

import asyncio
import time
from datetime import timedelta
from functools import partial

import msgspec
import pytest

from fault_proxy import Fault, FaultProxy
from gpu_control_plane.api import GPUDevice, inventory_id
from gpu_control_plane.api.examples import h200, pci_address
from gpu_control_plane.api.names import Annotation, EventReason, Label, NodeCondition, Reason
from gpu_control_plane.api.nodefeature import CARDS, Element, Instances, NodeFacts, node_feature
from gpu_control_plane.inventory import Settings
from gpu_control_plane.kube import Client
from integration.inventory.machines import FACTS, Machine, controllers
from waiting import until, until_async, until_still

COMPLETE = NodeCondition.INVENTORY_COMPLETE
READY = NodeCondition.READY_FOR_POOLING


async def test_eight_cards_cost_nineteen_writes_and_then_none(client: Client, machine: Machine) -> None:
    """Two for each card and for the node, which the API needs since a status is written apart; one for readiness. A
    report that only the reboot has changed costs one: its number."""
    async with FaultProxy.before(client.config) as proxy:
        async with controllers(proxy):
            await machine.report(machine.cards(8))
            await machine.until_condition(READY, Reason.READY)
            await machine.until_condition(COMPLETE, Reason.INVENTORY_SYNCED)
            assert _writes_by_kind(machine, proxy) == {"gpudevices": 8, "gpudevices/status": 8, "gpunodestates": 1} | {
                "gpunodestates/status": 2
            }
            await _others_are_served(client, machine)
            assert len(machine.writes(proxy)) == 19
            await machine.report(machine.cards(8), facts=msgspec.structs.replace(FACTS, boot_id="another"))
            await _others_are_served(client, machine)
            assert len(machine.writes(proxy)) == 20
        async with controllers(proxy):
            await _others_are_served(client, machine)
            assert len(machine.writes(proxy)) == 20
    devices = await machine.devices()
    assert {address: device.status.hardware for address, device in devices.items()} == {
        card.pci.address: card for card in machine.cards(8)
    }
    assert devices[pci_address(0)].metadata.labels == {
        Label.NODE: machine.name,
        Label.VENDOR: "NVIDIA",
        Label.PRODUCT: "NVIDIA-H200",
        Label.ARCHITECTURE: "Hopper",
    }
    state = await machine.state()
    assert state is not None
    assert (state.status.device_count, state.status.driver) == (8, FACTS.driver)
    assert [one.inventory_id for one in state.status.devices] == sorted(device.name for device in devices.values())
    # One Event for all cards that a node comes with: a thousand nodes must not be a storm.
    found = await machine.until_events(EventReason.DEVICE_DETECTED, EventReason.READY_FOR_POOLING)
    notes = {event.note for event in found if event.reason == EventReason.DEVICE_DETECTED}
    assert notes == {f"Cards found on {machine.name}: 8 x NVIDIA H200."}


async def test_approvals_survive_reboot_missing_driver_and_registering_anew(client: Client, machine: Machine) -> None:
    async with FaultProxy.before(client.config) as proxy, controllers(proxy):
        await machine.report(machine.cards(2))
        await machine.until_condition(READY, Reason.READY)
        await machine.approve(1)
        before = await machine.device(1)
        bare = tuple(
            msgspec.structs.replace(card, uuid=None, memory_mib=None, architecture=None, mig=None, product="GH100")
            for card in machine.cards(2)
        )
        await machine.report(bare, facts=NodeFacts(bus_cards=2, boot_id="after the reboot"))
        await machine.until_condition(READY, Reason.DRIVER_NOT_READY)
        await machine.unregister()
        await machine.until_condition(COMPLETE, Reason.NODE_GONE)
        assert await machine.condition(NodeCondition.VANISHED) is not None
        await machine.register()
        await machine.report(machine.cards(2))
        await machine.until_condition(READY, Reason.READY)
        after = await machine.device(1)
    assert after.metadata.resource_version == before.metadata.resource_version
    assert await machine.condition(NodeCondition.VANISHED) is None


async def test_another_card_at_the_address_needs_another_approval(client: Client, machine: Machine) -> None:
    """The approval is dropped first: a crash before the new hardware is written must not hide the replacement."""
    async with FaultProxy.before(client.config) as proxy:
        async with controllers(proxy):
            await machine.report(machine.cards(2))
            await machine.until_condition(COMPLETE, Reason.INVENTORY_SYNCED)
            await machine.approve(0)
            await machine.approve(1)
            old = await machine.device(1)
            fault = proxy.plant(Fault(when=lambda r: r.path.endswith(f"{old.name}/status"), status=400, times=1000))
            swapped = msgspec.structs.replace(h200(machine.name, 1, 2), uuid="GPU-new", product="NVIDIA H200 NVL")
            await machine.report((h200(machine.name, 0, 2), swapped))
            await until(lambda: fault.times < 1000)
        between = await machine.device(1)
        assert between.status.hardware == old.status.hardware
        assert Annotation.ASSIGNMENT not in between.metadata.annotations
        proxy.faults.clear()
        async with controllers(proxy):
            await until_async(lambda: _has_uuid(machine, 1, "GPU-new"))
            await machine.until_events(EventReason.DEVICE_REPLACED)
    new = await machine.device(1)
    assert new.metadata.uid == old.metadata.uid
    assert new.metadata.labels[Label.PRODUCT] == "NVIDIA-H200-NVL"
    assert Annotation.ASSIGNMENT not in new.metadata.annotations
    assert (await machine.device(0)).metadata.annotations[Annotation.ASSIGNMENT] == "training"


async def test_a_card_is_removed_when_the_bus_no_longer_shows_it(client: Client, machine: Machine) -> None:
    async with FaultProxy.before(client.config) as proxy, controllers(proxy):
        await machine.report(machine.cards(3))
        await machine.until_condition(COMPLETE, Reason.INVENTORY_SYNCED)
        await machine.report(machine.cards(3)[:2], bus=3)
        await machine.until_condition(COMPLETE, Reason.CARDS_MISSING)
        await machine.until_condition(READY, Reason.INVENTORY_INCOMPLETE)
        assert len(await machine.devices()) == 3
        held = await machine.condition(COMPLETE)
        assert held is not None
        assert f"Missing: {pci_address(2)} (NVIDIA H200)." in held.message
        await machine.report(machine.cards(3)[:2])
        await machine.until_condition(COMPLETE, Reason.INVENTORY_SYNCED)
        assert set(await machine.devices()) == {pci_address(0), pci_address(1)}
        await machine.until_events(EventReason.DEVICE_REMOVED, Reason.CARDS_MISSING)


async def test_a_card_that_the_driver_never_showed_can_be_taken_out_of_service(
    client: Client, machine: Machine
) -> None:
    """It costs one write, and is described like any other once the driver shows it."""
    unseen = inventory_id(machine.name, pci_address(1))
    async with FaultProxy.before(client.config) as proxy, controllers(proxy):
        await machine.report(machine.cards(2)[:1], bus=2)
        await machine.until_condition(READY, Reason.INVENTORY_INCOMPLETE)
        held = await machine.condition(COMPLETE)
        assert held is not None
        assert f"`kubectl label gpudevice {unseen} {Label.IGNORE}=true`" in held.message
        assert (await machine.device(1)).status.hardware is None
        assert len([write for write in machine.writes(proxy) if unseen in write.path]) == 1

        await client.patch(GPUDevice, unseen, {"metadata": {"labels": {Label.IGNORE.value: "true"}}})
        await machine.until_condition(READY, Reason.READY)
        await machine.report(machine.cards(2))
        await until_async(lambda: _described(machine, 1), saying="the card is described")
        assert (await machine.device(1)).metadata.labels[Label.IGNORE] == "true"
        await machine.report(machine.cards(2)[:1])
        await until_async(lambda: _gone(machine, 1), saying="the card is forgotten")


async def _described(machine: Machine, index: int) -> bool:
    return (await machine.device(index)).status.hardware is not None


async def _gone(machine: Machine, index: int) -> bool:
    return pci_address(index) not in await machine.devices()


async def test_a_node_that_stays_away_is_forgotten_across_a_restart(client: Client, machine: Machine) -> None:
    """The second controller has a shorter grace period, and counts from where the first began."""
    grace = Settings(node_grace_period=timedelta(seconds=3))
    async with FaultProxy.before(client.config) as proxy:
        async with controllers(proxy):
            await machine.report(machine.cards(2))
            await machine.until_condition(READY, Reason.READY)
            await machine.unregister()
            gone_at = time.monotonic()
            await machine.until_condition(NodeCondition.VANISHED, Reason.NODE_GONE)
            clock = await machine.condition(NodeCondition.VANISHED)
        async with controllers(proxy, grace):
            assert await machine.condition(NodeCondition.VANISHED) in (clock, None)
            await until_async(lambda: _is_forgotten(machine))
            # Conditions count whole seconds, so the clock may have started up to a second early.
            assert time.monotonic() - gone_at >= 2
        assert await machine.devices() == {}
        assert not await machine.feature_exists()
    await machine.until_events(EventReason.NODE_FORGOTTEN)


async def test_a_report_that_makes_no_sense_changes_nothing_but_the_condition(client: Client, machine: Machine) -> None:
    async with FaultProxy.before(client.config) as proxy, controllers(proxy):
        await machine.report(machine.cards(2))
        await machine.until_condition(COMPLETE, Reason.INVENTORY_SYNCED)
        before = await machine.devices()
        spec = node_feature(machine.name, NodeFacts(bus_cards=1), ())
        spec.features.instances[CARDS] = Instances(elements=(Element(attributes={"vendor": "NVIDIA"}),))
        await machine.publish(spec)
        await machine.until_condition(COMPLETE, Reason.NODE_FEATURE_INVALID)
        await machine.until_condition(READY, Reason.INVENTORY_INCOMPLETE)
        assert await machine.devices() == before
        await machine.until_events(Reason.NODE_FEATURE_INVALID)
        await machine.report(machine.cards(2))
        await machine.until_condition(READY, Reason.READY)


async def test_values_that_the_api_refuses_are_in_the_condition_and_not_tried_for_ever(
    client: Client, machine: Machine
) -> None:
    async with FaultProxy.before(client.config) as proxy, controllers(proxy):
        odd = tuple(msgspec.structs.replace(card, compute_capability="nine") for card in machine.cards(4))
        await machine.report(odd)
        await machine.until_condition(COMPLETE, Reason.NODE_FEATURE_INVALID)
        await machine.until_condition(READY, Reason.INVENTORY_INCOMPLETE)
        held = await machine.condition(COMPLETE)
        assert held is not None
        assert "computeCapability" in held.message
        await _others_are_served(client, machine)
        writes = len(machine.writes(proxy))
        await until_still(lambda: len(machine.writes(proxy)))
        assert len(machine.writes(proxy)) == writes
        await machine.report(machine.cards(4))
        await machine.until_condition(READY, Reason.READY)


async def test_a_replacement_is_settled_among_many_other_writes(client: Client, machine: Machine) -> None:
    """Other clients write the objects all the time; the approval of the old card must still be dropped."""
    stop = asyncio.Event()

    async def annotate(index: int) -> None:
        name, number = inventory_id(machine.name, pci_address(index)), 0
        while not stop.is_set():
            number += 1
            note: dict[str, object] = {"metadata": {"annotations": {"example.com/note": str(number)}}}
            start = time.monotonic()
            await client.patch(GPUDevice, name, note)
            # A pause that is shorter than a request would leave other writers no chance.
            await asyncio.sleep(max(0.02, 4 * (time.monotonic() - start)))

    async with FaultProxy.before(client.config) as proxy, controllers(proxy), asyncio.TaskGroup() as group:
        await machine.report(machine.cards(2))
        await machine.until_condition(COMPLETE, Reason.INVENTORY_SYNCED)
        for index in range(2):
            await machine.approve(index)
            group.create_task(annotate(index))
        await machine.report(
            msgspec.structs.replace(card, uuid=f"GPU-new-{index}") for index, card in enumerate(machine.cards(2))
        )
        for index in range(2):
            await until_async(partial(_has_uuid, machine, index, f"GPU-new-{index}"))
            assert Annotation.ASSIGNMENT not in (await machine.device(index)).metadata.annotations
        stop.set()


@pytest.mark.parametrize("answered", [True, False], ids=["after the write", "before its answer"])
async def test_a_crash_at_any_write_leads_to_the_same_end(client: Client, machine: Machine, answered: bool) -> None:
    """Two cards appear, one is exchanged, one leaves: the process dies at every single write of it."""
    swapped = msgspec.structs.replace(h200(machine.name, 1, 3), uuid="GPU-new", product="NVIDIA H200 NVL")
    stages = (machine.cards(3), (h200(machine.name, 0, 3), swapped, h200(machine.name, 2, 3)), machine.cards(3)[:1])
    crashes = 0
    async with FaultProxy.before(client.config) as proxy:
        for number, cards in enumerate(stages):
            await machine.report(cards)
            if number == 1:
                await machine.approve(1)
            while True:
                done = len(machine.writes(proxy))
                first = Fault(when=lambda r: r.is_write and machine.name in r.path, lose_answer=not answered)
                rest = Fault(when=lambda r: r.is_write and machine.name in r.path, status=503, times=10_000)
                proxy.faults[:] = [first, rest]
                async with controllers(proxy, orderly=False):
                    await _others_are_served(client, machine, unless=first)
                    dead = first.spent
                proxy.faults.clear()
                if not dead:
                    break
                crashes += 1
                assert len(machine.writes(proxy)) > done
            devices = await machine.devices()
            assert {address: device.status.hardware for address, device in devices.items()} == {
                card.pci.address: card for card in cards
            }
            assert not any(Annotation.ASSIGNMENT in device.metadata.annotations for device in devices.values())
            state = await machine.state()
            assert state is not None
            assert state.status.device_count == len(cards)
    assert crashes >= 14


async def _others_are_served(client: Client, machine: Machine, unless: Fault | None = None) -> None:
    """Return when the controllers have worked on a node that came later, and so on everything before it.

    Or, if that comes first, when the fault has struck.
    """
    marker = Machine(client, f"later-{machine.name[-6:]}-{time.monotonic_ns() % 10**9}")
    await marker.register()
    await marker.report(marker.cards(1))

    async def served() -> bool:
        return (unless is not None and unless.spent) or await marker.condition(COMPLETE) is not None

    await until_async(served)


async def _has_uuid(machine: Machine, index: int, uuid: str) -> bool:
    hardware = (await machine.device(index)).status.hardware
    return hardware is not None and hardware.uuid == uuid


async def _is_forgotten(machine: Machine) -> bool:
    return await machine.state() is None


def _writes_by_kind(machine: Machine, proxy: FaultProxy) -> dict[str, int]:
    """Writes by resource and subresource."""
    counts: dict[str, int] = {}
    for request in machine.writes(proxy):
        _, _, _, _, resource, _, *sub = request.path.split("/")
        kind = "/".join((resource, *sub))
        counts[kind] = counts.get(kind, 0) + 1
    return counts
