"""A tenant labels Pods as operands: the conditions of the node on which they run do not change."""

from datetime import timedelta
from pathlib import Path

import pytest

from fault_proxy import FaultProxy
from gpu_control_plane import bootstrap
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.bootstrap.operands import NVIDIA, OTHERS, OURS
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import Forbidden
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.local import Cluster
from integration.bootstrap.operands import Operands, allow_pods
from integration.inventory.machines import DEFAULTS, Machine, controllers
from integration.tenant import tenant
from waiting import until_still

READY = NodeCondition.READY_FOR_POOLING
QUICK = bootstrap.Settings(loss_after=timedelta(seconds=1), return_after=timedelta(seconds=1))


async def test_a_tenants_pods_change_no_condition(
    client: Client, api_server: Cluster, machine: Machine, operands: Operands, tmp_path: Path
) -> None:
    async with (
        tenant(client, api_server.kubeconfig, tmp_path) as editor,
        FaultProxy.before(client.config) as proxy,
        controllers(proxy, DEFAULTS, QUICK),
    ):
        await allow_pods(client, editor.namespace)
        await machine.report(machine.cards(1))
        await operands.start("agent", since=utc_now() - timedelta(days=1))
        await machine.until_condition(READY, Reason.READY)
        await until_still(lambda: len(machine.writes(proxy)))
        before, writes = await machine.state(), len(machine.writes(proxy))
        hostile = Operands(editor.client, machine.name, namespace=editor.namespace, kubelet=client)
        with pytest.raises(Forbidden):
            await Operands(editor.client, machine.name).create("agent-of-a-tenant")
        # Half of them are ready, and would be operands too many; the others would be lost ones.
        for number, app in enumerate(NVIDIA):
            await hostile.create(f"nvidia-{number}", app=app)
            await hostile.is_ready(f"nvidia-{number}", number % 2 == 0, since=utc_now() - timedelta(hours=1))
        for component in OURS:
            await hostile.start(component)
        for chart in OTHERS:
            await hostile.start(f"of-a-chart-{chart}", chart=chart)
        await until_still(lambda: len(machine.writes(proxy)))
        after = await machine.state()
        assert before is not None
        assert after is not None
        assert after.status.conditions == before.status.conditions
        # The controller still looks at the node: when its own agent is lost, it says so, in one write.
        await operands.is_ready("agent", False, since=utc_now() - timedelta(hours=1))
        await machine.until_condition(READY, Reason.AGENT_NOT_READY)
        assert len(machine.writes(proxy)) == writes + 1
        await hostile.stop_all()


async def test_a_pod_of_a_trusted_namespace_counts_if_a_daemonset_made_it(
    client: Client, machine: Machine, operands: Operands
) -> None:
    plugin = "nvidia-device-plugin-daemonset"
    async with FaultProxy.before(client.config) as proxy, controllers(proxy, DEFAULTS, QUICK):
        await machine.report(machine.cards(1))
        await operands.start("agent", since=utc_now() - timedelta(days=1))
        await machine.until_condition(READY, Reason.READY)
        await operands.create("by-hand", app=plugin, owner=None)
        await operands.is_ready("by-hand", True)
        await until_still(lambda: len(machine.writes(proxy)))
        ready = await machine.condition(READY)
        assert ready is not None
        assert ready.reason == Reason.READY
        await operands.start("plugin", app=plugin)
        await machine.until_condition(READY, Reason.CONFLICTING_DEVICE_PLUGIN)
