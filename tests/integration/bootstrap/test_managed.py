"""A node is taken out by the label that the chart names, and brought back, on the real API server."""

from datetime import timedelta
from typing import Final

from fault_proxy import FaultProxy
from gpu_control_plane import bootstrap, inventory
from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.names import Label, NodeCondition, Reason
from gpu_control_plane.api.node import Node
from gpu_control_plane.kube import Client
from gpu_control_plane.pools import controller as pools
from gpu_control_plane.rules.managed_nodes import ManagedNodes
from integration.bootstrap.operands import Operands
from integration.inventory.machines import DEFAULTS, Machine, controllers
from waiting import until_async, until_still

KEY: Final = "example.com/gpu"
OPTED_OUT: Final = ManagedNodes(label=KEY)
OPTED_IN: Final = ManagedNodes(label=KEY, by_default=False)
READY: Final = NodeCondition.READY_FOR_POOLING


async def label(machine: Machine, **labels: str | None) -> None:
    """Set the labels that say whether the node is managed, and whether it has cards."""
    names = {"enabled": KEY, "present": Label.GPU_PRESENT}
    body: dict[str, object] = {"metadata": {"labels": {names[name]: value for name, value in labels.items()}}}
    await machine.client.patch(Node, machine.name, body)


async def test_taking_a_node_out_is_one_write_and_it_keeps_its_cards(
    client: Client, machine: Machine, operands: Operands
) -> None:
    pool = await machine.add_pool(2)
    rule = bootstrap.Settings(managed=OPTED_OUT)
    async with FaultProxy.before(client.config) as proxy, controllers(proxy, DEFAULTS, rule, beside=pools.build):
        await operands.start("agent")
        await machine.report(machine.cards(2))
        await machine.until_condition(READY, Reason.READY)
        await machine.are_healthy()
        await machine.approve(0, pool)
        await until_async(machine.orders, saying="the card is issued")
        await until_still(lambda: len(machine.writes(proxy)))
        before = len(machine.writes(proxy))
        await label(machine, enabled="false")
        await operands.stop("agent")
        await machine.until_condition(READY, Reason.NOT_MANAGED)
        await machine.until_condition(NodeCondition.DEGRADED, Reason.NOT_MANAGED)
        await until_still(lambda: len(machine.writes(proxy)))
        assert [request.path for request in machine.writes(proxy)[before:]] == [
            f"/apis/gpu.deckhouse.io/v1alpha1/gpunodestates/{machine.name}/status"
        ]
        assert await machine.orders() == [pci_address(0)]
        await label(machine, enabled=None)
        await operands.start("agent")
        await machine.until_condition(READY, Reason.READY)


async def test_a_node_that_never_reported_is_forgotten_when_it_is_taken_out(
    client: Client, machine: Machine, operands: Operands
) -> None:
    settings = inventory.Settings(first_report_timeout=timedelta(0), managed=OPTED_IN)
    rule = bootstrap.Settings(managed=OPTED_IN)
    async with FaultProxy.before(client.config) as proxy, controllers(proxy, settings, rule):
        await operands.create("agent")
        await label(machine, present="true", enabled="true")
        await machine.until_condition(NodeCondition.INVENTORY_COMPLETE, Reason.NODE_FEATURE_MISSING)
        await label(machine, enabled=None)

        async def forgotten() -> bool:
            return await machine.state() is None

        await until_async(forgotten, saying="the object of a node that is not managed is deleted")
