"""What `kubectl describe gpunodestate` shows of three broken nodes: what is wrong, and what to type."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from fault_proxy import FaultProxy
from gpu_control_plane import bootstrap
from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.api.nodefeature import NodeFacts
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.local import Cluster, ensure_binaries
from integration.bootstrap.operands import Operands
from integration.inventory.machines import DEFAULTS, Machine, controllers
from integration.local.commands import Kubectl

READY = NodeCondition.READY_FOR_POOLING
LONG = timedelta(hours=1)


@pytest.fixture(scope="session")
def kubectl_program() -> Path:
    return ensure_binaries(["kubectl"]).path("kubectl")


@pytest.fixture
def kubectl(api_server: Cluster, kubectl_program: Path) -> Kubectl:
    return Kubectl(kubectl_program, api_server.kubeconfig)


async def test_three_broken_nodes_show_what_to_do(
    client: Client, machine: Machine, operands: Operands, kubectl: Kubectl
) -> None:
    lost, missing = machine, Machine(client, f"missing-{machine.name}")
    bare = Machine(client, f"bare-{machine.name}")
    await missing.register()
    await bare.register()
    async with FaultProxy.before(client.config) as proxy, controllers(proxy, DEFAULTS, bootstrap.Settings()):
        # A node without a driver.
        cards = (
            msgspec.structs.replace(card, uuid=None, memory_mib=None, mig=None, product="GH100")
            for card in bare.cards(2)
        )
        await bare.report(cards, facts=NodeFacts(bus_cards=2))
        # A node whose driver has lost a card.
        await missing.report(missing.cards(2))
        await missing.until_condition(READY, Reason.READY)
        await missing.report(missing.cards(2)[:1], bus=2)
        # A node whose agent has not been ready for an hour.
        await lost.report(lost.cards(2))
        await operands.start("agent")
        await operands.is_ready("agent", False, since=utc_now() - LONG)

        await bare.until_condition(READY, Reason.DRIVER_NOT_READY)
        await missing.until_condition(READY, Reason.INVENTORY_INCOMPLETE)
        await lost.until_condition(READY, Reason.AGENT_NOT_READY)
        described = {one.name: kubectl("describe", "gpunodestate", one.name) for one in (bare, missing, lost)}

    assert "Install it on the machine, or have a ClusterPolicy bring it." in described[bare.name]
    assert f"`nvidia-smi` must answer on {bare.name}" in described[bare.name]
    assert "That needs the driver: install that first." in described[bare.name]
    assert f"Missing: {pci_address(1)} (NVIDIA H200)." in described[missing.name]
    assert f"`lspci -nnk -s {pci_address(1)}`" in described[missing.name]
    assert "gpu.deckhouse.io/ignore=true`" in described[missing.name]
    assert "pods keep their cards" in described[lost.name]
    assert f"`kubectl -n d8-gpu-operator describe pod {operands.name('agent')}`" in described[lost.name]
    for text in described.values():
        assert "Ready For Pooling" in text or "ReadyForPooling" in text
