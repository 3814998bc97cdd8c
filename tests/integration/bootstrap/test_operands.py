"""From Pods to conditions on a real API server: restarts, losses, duplicates, and one Event for each change."""

from collections import Counter
from datetime import timedelta

from fault_proxy import FaultProxy
from gpu_control_plane import bootstrap
from gpu_control_plane.api.names import EventReason, NodeCondition, Reason
from gpu_control_plane.api.node import Node
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.times import utc_now
from integration.bootstrap.operands import Operands
from integration.bootstrap.test_down import settled, writes_by_kind
from integration.inventory.machines import CHECKING, DEFAULTS, LABELLING, Machine, controllers
from waiting import until, until_still

READY = NodeCondition.READY_FOR_POOLING
QUICK = bootstrap.Settings(loss_after=timedelta(seconds=3), return_after=timedelta(seconds=1))
# However slow the machine is, nothing takes as long; what is lost or back in these tests has been since yesterday.
SLOW = bootstrap.Settings(loss_after=timedelta(hours=1))


async def test_a_restart_of_the_agent_costs_no_write_and_its_loss_one(
    client: Client, machine: Machine, operands: Operands
) -> None:
    long_ago = utc_now() - timedelta(days=1)
    async with FaultProxy.before(client.config) as proxy, controllers(proxy, DEFAULTS, SLOW):
        await machine.report(machine.cards(1))
        await operands.start("agent", since=long_ago)
        await machine.until_condition(READY, Reason.READY)
        await until_still(lambda: len(machine.writes(proxy)))
        before = len(machine.writes(proxy))

        # The container restarts, then the whole Pod is replaced: both take less than `loss_after`.
        await operands.is_ready("agent", False)
        await until_still(lambda: len(machine.writes(proxy)))
        await operands.is_ready("agent", True)
        await operands.stop("agent")
        await until_still(lambda: len(machine.writes(proxy)))
        await operands.start("agent")
        await until_still(lambda: len(machine.writes(proxy)))
        assert len(machine.writes(proxy)) == before

        # It is lost: one write for all conditions that say so.
        await operands.is_ready("agent", False, since=long_ago)
        await machine.until_condition(READY, Reason.AGENT_NOT_READY)
        await machine.until_condition(NodeCondition.DEGRADED, Reason.AGENT_NOT_READY)
        await machine.until_condition(NodeCondition.MONITORING_MISSING, Reason.MONITORING_NOT_READY)
        assert len(machine.writes(proxy)) == before + 1
        await operands.is_ready("agent", True, since=long_ago)
        await machine.until_condition(READY, Reason.READY)
        assert len(machine.writes(proxy)) == before + 2

        found = await machine.until_events(
            *(EventReason.NOT_READY_FOR_POOLING, Reason.AGENT_NOT_READY, Reason.UNDISTURBED),
            *(Reason.MONITORING_NOT_READY, Reason.MONITORING_FOUND),
        )
        counts = Counter(event.reason for event in found)
        assert counts[EventReason.NOT_READY_FOR_POOLING] == 1
        assert counts[Reason.AGENT_NOT_READY] == counts[Reason.UNDISTURBED] == 1
        assert counts[Reason.MONITORING_NOT_READY] == counts[Reason.MONITORING_FOUND] == 1
        assert all(event.series is None or event.reason == EventReason.READY_FOR_POOLING for event in found)


async def test_a_node_that_never_had_an_agent_pod_lacks_one_once_others_have_it(
    client: Client, machine: Machine, operands: Operands
) -> None:
    other = Machine(client, f"other-{machine.name}")
    await other.register(ready=True)
    its_agent = Operands(client, other.name)
    async with FaultProxy.before(client.config) as proxy, controllers(proxy, DEFAULTS, QUICK):
        await other.report(other.cards(1))
        await other.until_condition(READY, Reason.READY)
        await machine.report(machine.cards(1))
        await operands.start("agent")
        await other.until_condition(READY, Reason.AGENT_NOT_READY)
        held = await other.condition(READY)
        assert held is not None
        assert f"`kubectl label node {other.name} gpu.deckhouse.io/gpu.present=true`" in held.message
        await machine.until_condition(READY, Reason.READY)
        # That all agents are gone is not the same as that there never was one: both nodes lack theirs.
        await operands.stop("agent")
        await machine.until_condition(READY, Reason.AGENT_NOT_READY)
        await its_agent.start("agent")
        await other.until_condition(READY, Reason.READY)
    await its_agent.stop_all()


async def test_a_new_node_is_ready_when_its_agent_has_checked_it_and_not_before(
    client: Client, machine: Machine, operands: Operands
) -> None:
    late = Machine(client, f"late-{machine.name}")
    await late.register(ready=True)
    its_agent = Operands(client, late.name)
    await its_agent.start("agent")
    await operands.start("agent")
    async with FaultProxy.before(client.config) as proxy:
        async with controllers(proxy, DEFAULTS, SLOW):
            await machine.report(machine.cards(2), facts=CHECKING)
            await machine.until_condition(NodeCondition.INVENTORY_COMPLETE, Reason.INVENTORY_SYNCED)
            await machine.check()
            await machine.until_condition(READY, Reason.READY)
            # Conditions are written once, after the check.
            assert writes_by_kind(machine, proxy) == settled(machine)
        async with controllers(proxy, DEFAULTS, QUICK):
            await late.report(late.cards(2), facts=CHECKING)
            await late.until_condition(READY, Reason.CHECKS_PENDING)
            # Checks with another driver than the one that is loaded now prove nothing.
            await late.check(driver="535.1")
            await late.until_events(EventReason.NOT_READY_FOR_POOLING)
            await late.check()
            await late.until_condition(READY, Reason.READY)
            assert writes_by_kind(late, proxy) == {**settled(late), "gpunodestates/status": 3}
    await its_agent.stop_all()


async def test_labels_and_duplicates_are_seen_on_the_node(client: Client, machine: Machine, operands: Operands) -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/gpu.count": "1"}
    async with FaultProxy.before(client.config) as proxy, controllers(proxy, DEFAULTS, QUICK) as runtime:
        await machine.report(machine.cards(1), facts=LABELLING)
        await operands.start("agent")
        await machine.until_condition(NodeCondition.GFD_READY, Reason.FEATURE_LABELS_MISSING)
        await client.patch(Node, machine.name, {"metadata": {"labels": labels}})
        await machine.until_condition(NodeCondition.GFD_READY, Reason.FEATURE_LABELS_FOUND)

        await operands.start("exporter", app="nvidia-dcgm-exporter")
        await machine.until_condition(NodeCondition.DEGRADED, Reason.DUPLICATE_SOURCE)
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
        await machine.until_condition(READY, Reason.CONFLICTING_DEVICE_PLUGIN)
        await operands.stop("plugin")
        await machine.until_condition(READY, Reason.READY)
        await operands.stop("exporter")
        await machine.until_condition(NodeCondition.DEGRADED, Reason.UNDISTURBED)
        await operands.start("others", chart="dcgm-exporter")
        await machine.until_condition(NodeCondition.DEGRADED, Reason.DUPLICATE_SOURCE)
