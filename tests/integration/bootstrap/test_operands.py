"""From pods to conditions on a real API server: patience, losses, duplicates, and one Event for each change."""

import asyncio
from collections import Counter
from datetime import timedelta

from fault_proxy import FaultProxy
from gpu_control_plane import bootstrap
from gpu_control_plane.api.names import EventReason, NodeCondition, Reason
from gpu_control_plane.api.node import Node
from gpu_control_plane.kube import Client
from integration.bootstrap.operands import Operands
from integration.inventory.machines import DEFAULTS, Machine, controllers
from waiting import until

READY = NodeCondition.READY_FOR_POOLING
QUICK = bootstrap.Settings(loss_after=timedelta(seconds=3), return_after=timedelta(seconds=1))


async def test_a_restart_of_the_agent_costs_no_write_and_its_loss_one(
    client: Client, machine: Machine, operands: Operands
) -> None:
    async with FaultProxy.before(client.config) as proxy, controllers(proxy, DEFAULTS, QUICK):
        await machine.report(machine.cards(1))
        await operands.start("agent")
        await machine.until_said(READY, Reason.READY)
        await machine.until_said(NodeCondition.INVENTORY_COMPLETE, Reason.INVENTORY_SYNCED)
        before = len(machine.writes(proxy))

        # The container restarts, then the whole pod is replaced: both within the patience.
        await operands.is_ready("agent", False)
        await asyncio.sleep(1)  # the restart itself
        await operands.is_ready("agent", True)
        await operands.stop("agent")
        await operands.start("agent")
        await asyncio.sleep(QUICK.loss_after.total_seconds() + 1)  # longer than any patience
        assert len(machine.writes(proxy)) == before

        # It is lost: one write for all conditions that say so.
        await operands.is_ready("agent", False)
        await machine.until_said(READY, Reason.AGENT_NOT_READY)
        await machine.until_said(NodeCondition.DEGRADED, Reason.AGENT_NOT_READY)
        await machine.until_said(NodeCondition.MONITORING_MISSING, Reason.MONITORING_NOT_READY)
        assert len(machine.writes(proxy)) == before + 1
        await operands.is_ready("agent", True)
        await machine.until_said(READY, Reason.READY)
        assert len(machine.writes(proxy)) == before + 2

        told = await machine.until_events(
            EventReason.NOT_READY_FOR_POOLING, Reason.AGENT_NOT_READY, Reason.UNDISTURBED, Reason.MONITORING_FOUND
        )
        counts = Counter(event.reason for event in told)
        assert counts[EventReason.NOT_READY_FOR_POOLING] == 1
        assert counts[Reason.AGENT_NOT_READY] == counts[Reason.UNDISTURBED] == 1
        assert counts[Reason.MONITORING_NOT_READY] == counts[Reason.MONITORING_FOUND] == 1
        assert all(event.series is None or event.reason == EventReason.READY_FOR_POOLING for event in told)


async def test_a_node_that_never_had_an_agent_pod_lacks_one_once_others_have_it(
    client: Client, machine: Machine, operands: Operands
) -> None:
    other = Machine(client, f"other-{machine.name}")
    await other.register(ready=True)
    async with FaultProxy.before(client.config) as proxy, controllers(proxy, DEFAULTS, QUICK):
        await other.report(other.cards(1))
        await other.until_said(READY, Reason.READY)
        await machine.report(machine.cards(1))
        await operands.start("agent")
        await other.until_said(READY, Reason.AGENT_NOT_READY)
        held = await other.condition(READY)
        assert held is not None
        assert f"`kubectl label node {other.name} gpu.deckhouse.io/gpu.present=true`" in held.message
        await machine.until_said(READY, Reason.READY)
        await operands.stop("agent")
        await other.until_said(READY, Reason.READY)


async def test_labels_and_duplicates_are_seen_on_the_node(client: Client, machine: Machine, operands: Operands) -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/gpu.count": "1"}
    async with FaultProxy.before(client.config) as proxy, controllers(proxy, DEFAULTS, QUICK) as runtime:
        await machine.report(machine.cards(1))
        await operands.start("agent", "--labels")
        await machine.until_said(NodeCondition.GFD_READY, Reason.FEATURE_LABELS_MISSING)
        await client.patch(Node, machine.name, {"metadata": {"labels": labels}})
        await machine.until_said(NodeCondition.GFD_READY, Reason.FEATURE_LABELS_FOUND)

        await operands.start("exporter", app="nvidia-dcgm-exporter")
        await machine.until_said(NodeCondition.DEGRADED, Reason.DUPLICATE_SOURCE)
        held = await machine.condition(NodeCondition.DEGRADED)
        assert held is not None
        assert "the agent and nvidia-dcgm-exporter in d8-gpu-operator" in held.message
        ready = await machine.condition(READY)
        assert ready is not None
        assert ready.reason == Reason.READY
        phase = {"node": machine.name, "phase": "Ready"}
        registry = runtime.metrics.registry
        await until(lambda: registry.get_sample_value("gpu_bootstrap_node_phase", phase) == 1)

        await operands.start("plugin", app="nvidia-device-plugin-daemonset")
        await machine.until_said(READY, Reason.CONFLICTING_DEVICE_PLUGIN)
        await operands.stop("plugin")
        await machine.until_said(READY, Reason.READY)
        await operands.stop("exporter")
        await machine.until_said(NodeCondition.DEGRADED, Reason.UNDISTURBED)
