"""The identity of cards and nodes on a real API server: other sources about the bus, moved cards, renamed nodes."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from fault_proxy import Fault, FaultProxy
from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.api import inventory_id
from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.gpudevice import GPUDevice, Hardware
from gpu_control_plane.api.gpunodestate import Driver
from gpu_control_plane.api.names import Annotation, EventReason, Label, NodeCondition, Reason
from gpu_control_plane.api.nodefeature import (
    NODE_LABEL,
    NodeFeature,
    bus_feature,
    discovery_name,
    node_feature,
)
from gpu_control_plane.inventory import Settings
from gpu_control_plane.kube import Client
from integration.bootstrap.operands import Operands, allow_pods
from integration.inventory.machines import AGENT, FACTS, Machine, controllers
from waiting import until_async

COMPLETE = NodeCondition.INVENTORY_COMPLETE
READY = NodeCondition.READY_FOR_POOLING
QUICK = Settings(bus_disagreement_timeout=timedelta(seconds=0.5), first_report_timeout=timedelta(seconds=0))


def moved(card: Hardware, index: int) -> Hardware:
    return msgspec.structs.replace(card, pci=msgspec.structs.replace(card.pci, address=pci_address(index)))


async def message(machine: Machine) -> str:
    held = await machine.condition(COMPLETE)
    return held.message if held is not None else ""


async def test_node_feature_discovery_is_read_in_a_namespace_that_is_named(
    client: Client, machine: Machine, namespace: str
) -> None:
    believed = msgspec.structs.replace(QUICK, nfd_namespaces=frozenset({namespace}))
    await machine.counted_by_nfd(namespace, 3)
    async with FaultProxy.before(client.config) as proxy, controllers(proxy, believed):
        await machine.report(machine.cards(2))
        await machine.until_condition(COMPLETE, Reason.BUS_DISAGREES)
        await machine.until_condition(READY, Reason.INVENTORY_INCOMPLETE)
        assert "it counts 3 of 10de:2335, the agent 2" in await message(machine)
        await machine.counted_by_nfd(namespace, 2)
        await machine.until_condition(READY, Reason.READY)


async def test_a_user_cannot_block_a_node_from_a_namespace(client: Client, machine: Machine, namespace: str) -> None:
    """A NodeFeature with NFD's name and label in a user's namespace; NFD itself is in one of the system's."""
    await machine.counted_by_nfd(namespace, 7)
    async with FaultProxy.before(client.config) as proxy, controllers(proxy, QUICK):
        await machine.report(machine.cards(2))
        await machine.until_condition(READY, Reason.READY)
        await machine.counted_by_nfd(namespace, 8)
        await machine.counted_by_nfd("kube-system", 3)
        await machine.until_condition(COMPLETE, Reason.BUS_DISAGREES)
        assert "it counts 3 of 10de:2335, the agent 2" in await message(machine)
        await machine.counted_by_nfd("kube-system", 2)
        await machine.until_condition(READY, Reason.READY)


async def test_a_worker_of_node_feature_discovery_that_restarts_withdraws_no_disagreement(
    client: Client, machine: Machine, namespace: str
) -> None:
    """Its NodeFeature goes with its pod and comes back with the next; those of other nodes stay."""
    quick = msgspec.structs.replace(QUICK, nfd_namespaces=frozenset({namespace}))
    patient = msgspec.structs.replace(quick, bus_disagreement_timeout=timedelta(hours=1))
    other = Machine(client, f"other-{machine.name}")
    await other.counted_by_nfd(namespace, 1)
    await machine.counted_by_nfd(namespace, 3)
    async with FaultProxy.before(client.config) as proxy:
        async with controllers(proxy, quick):
            await machine.report(machine.cards(2))
            await machine.until_condition(COMPLETE, Reason.BUS_DISAGREES)
            await machine.until_condition(READY, Reason.INVENTORY_INCOMPLETE)
        await client.delete(NodeFeature, machine.name, namespace)
        # A new controller, which has never read it.
        async with controllers(proxy, patient):
            newer = msgspec.structs.replace(FACTS, driver=Driver(version="590.1"))
            await machine.report(machine.cards(2), facts=newer)
            await until_async(lambda: _drives(machine, "590.1"), saying="the report is taken in")
            held = await machine.condition(COMPLETE)
            assert held is not None
            assert held.reason == Reason.BUS_DISAGREES
            await machine.counted_by_nfd(namespace, 2)
            await machine.until_condition(READY, Reason.READY)


async def test_discovery_of_our_own_says_where_the_missing_card_is(client: Client, machine: Machine) -> None:
    places = bus_feature(tuple(card.pci for card in machine.cards(2)))
    body = {"metadata": {"labels": {NODE_LABEL: machine.name}}, "spec": msgspec.to_builtins(places)}
    await client.apply(NodeFeature, discovery_name(machine.name), body, manager=AGENT, namespace=NAMESPACE)
    counted = msgspec.structs.replace(FACTS, bus_cards=2)
    async with FaultProxy.before(client.config) as proxy, controllers(proxy):
        await machine.publish(node_feature(machine.name, counted, machine.cards(1)))
        await machine.until_condition(COMPLETE, Reason.CARDS_MISSING)
        assert f"Missing: {pci_address(1)} (10de:2335)." in await message(machine)


async def test_the_agent_alone_says_which_card_the_driver_does_not_show(client: Client, machine: Machine) -> None:
    """Neither Node Feature Discovery nor discovery of ours, and the driver never showed the card."""
    async with FaultProxy.before(client.config) as proxy, controllers(proxy):
        await machine.report(machine.cards(2)[:1], bus=2)
        await machine.until_condition(READY, Reason.INVENTORY_INCOMPLETE)
        assert f"Missing: {pci_address(1)} (10de:2335)." in await message(machine)
        await machine.report(machine.cards(2))
        await machine.until_condition(READY, Reason.READY)


async def test_a_card_out_of_service_may_be_missing(client: Client, machine: Machine) -> None:
    async with FaultProxy.before(client.config) as proxy, controllers(proxy):
        await machine.report(machine.cards(2))
        await machine.until_condition(READY, Reason.READY)
        await machine.report(machine.cards(2)[:1], bus=2)
        await machine.until_condition(READY, Reason.INVENTORY_INCOMPLETE)
        name = inventory_id(machine.name, pci_address(1))
        await client.patch(GPUDevice, name, {"metadata": {"labels": {Label.IGNORE.value: "true"}}})
        await machine.until_condition(READY, Reason.READY)
        assert len(await machine.devices()) == 2


async def test_approvals_move_with_their_cards(client: Client, machine: Machine) -> None:
    """A card is put in front of two others: all of them get the address of the next."""
    first, second = machine.cards(2)
    async with FaultProxy.before(client.config) as proxy, controllers(proxy):
        await machine.report((first, second))
        await machine.until_condition(READY, Reason.READY)
        await machine.approve(0, "for-first")
        await machine.approve(1, "for-second")
        new = msgspec.structs.replace(first, uuid="GPU-new")
        await machine.report((new, moved(first, 1), moved(second, 2)))
        await machine.until_events(EventReason.DEVICE_MOVED, EventReason.DEVICE_REPLACED)
        # Each card is carried over by itself.
        wanted = {pci_address(0): None, pci_address(1): "for-first", pci_address(2): "for-second"}
        await until_async(lambda: _approved(machine, wanted), saying=f"approvals: {wanted}")


async def test_a_renamed_node_leaves_nothing_under_its_old_name(client: Client, machine: Machine) -> None:
    """Its cards come back under the new one at once, and are approved anew: only a person knows that it is the same."""
    renamed = Machine(client, f"renamed-{machine.name}")
    async with FaultProxy.before(client.config) as proxy:
        async with controllers(proxy):
            await machine.report(machine.cards(2))
            await machine.until_condition(READY, Reason.READY)
            await machine.approve(0)
        await renamed.register()
        await renamed.publish(node_feature(renamed.name, msgspec.structs.replace(FACTS, bus_cards=2), machine.cards(2)))
        async with controllers(proxy):
            # Neither kubelet answers: the node that had the cards first is believed, until the other's kubelet does.
            await renamed.until_condition(COMPLETE, Reason.CARDS_ELSEWHERE)
            await renamed.set_ready()
            await renamed.until_condition(READY, Reason.READY)
            # The old Node is still there: its condition says so, and none of its cards is issued.
            await machine.until_condition(COMPLETE, Reason.CARDS_ELSEWHERE)
            assert f"`kubectl delete node {machine.name}`" in await message(machine)
            assert len(await machine.devices()) == 2
            await machine.unregister()
            await until_async(lambda: _forgotten(machine), saying="the old name is forgotten")
            await renamed.until_condition(READY, Reason.READY)
    assert await machine.devices() == {}
    assert all(Annotation.ASSIGNMENT not in one.metadata.annotations for one in (await renamed.devices()).values())
    (note,) = await _notes(machine)
    assert f"{renamed.name} has its 2 cards" in note


async def test_a_controller_that_may_not_read_node_feature_discovery_goes_on_without_it(
    client: Client, machine: Machine
) -> None:
    async with FaultProxy.before(client.config) as proxy:
        everywhere = "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures"
        proxy.plant(Fault(when=lambda r: r.path == everywhere, status=403, reason="Forbidden", times=10_000))
        async with controllers(proxy):
            await machine.report(machine.cards(1))
            await machine.until_condition(READY, Reason.READY)


async def test_a_node_whose_agent_never_reports_gets_an_object(client: Client, machine: Machine) -> None:
    silent = Machine(client, f"silent-{machine.name}")
    await silent.register(ready=True, labels={Label.GPU_PRESENT.value: "true"})
    await allow_pods(client)
    agent = Operands(client, silent.name)
    await agent.create("agent")
    async with FaultProxy.before(client.config) as proxy, controllers(proxy, QUICK):
        await silent.until_condition(COMPLETE, Reason.NODE_FEATURE_MISSING)
        await silent.until_condition(READY, Reason.INVENTORY_INCOMPLETE)
        assert f"--field-selector spec.nodeName={silent.name}" in await message(silent)
        await silent.report(silent.cards(1))
        await agent.is_ready("agent", True)
        await silent.until_condition(READY, Reason.READY)
    await agent.stop_all()
    assert await machine.state() is None


async def _approved(machine: Machine, wanted: Mapping[str, str | None]) -> bool:
    devices = await machine.devices()
    return wanted == {at: device.metadata.annotations.get(Annotation.ASSIGNMENT) for at, device in devices.items()}


async def _drives(machine: Machine, version: str) -> bool:
    state = await machine.state()
    return state is not None and state.status.driver is not None and state.status.driver.version == version


async def _forgotten(machine: Machine) -> bool:
    return await machine.state() is None


async def _notes(machine: Machine) -> set[str]:
    """Notes of the Events; one that is on its way when a process ends may be written a second time."""
    found = await machine.until_events(EventReason.NODE_FORGOTTEN)
    return {event.note for event in found if event.reason == EventReason.NODE_FORGOTTEN}
