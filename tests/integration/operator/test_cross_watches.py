"""What parts of the operator are told although they watch something else."""

import secrets
from collections.abc import AsyncIterator

import pytest

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import DEPLOY, PRE_INSTALLED, TRUE, NodeLabel
from gpu_control_plane.kube import Client, Runtime
from gpu_control_plane.operator.news import DriverPods, follow_governed
from gpu_control_plane.operator.upgrade.caches import DRIVER_APP
from gpu_control_plane.operator.views import OperandPod
from integration.running import running
from waiting import until, until_still

CARD = {NodeLabel.PRESENT.value: TRUE, f"{DEPLOY}driver": TRUE}


@pytest.fixture
async def machine(client: Client) -> AsyncIterator[str]:
    name = f"machine-{secrets.token_hex(3)}"
    await client.create(Node, {"metadata": {"name": name, "labels": CARD}})
    yield name
    await client.delete(Node, name)


@pytest.fixture
def runtime(client: Client) -> Runtime:
    return Runtime("test-news", config=client.config, elect=False, status_port=None)


@pytest.mark.parametrize(
    ("label", "value"),
    [
        (f"{DEPLOY}driver", PRE_INSTALLED),
        (NodeLabel.OPERANDS.value, "false"),
        (NodeLabel.WORKLOAD.value, "vm-passthrough"),
        (NodeLabel.DRIVER_OWNER.value, "pool-a"),
        (NodeLabel.PRESENT.value, None),
    ],
)
async def test_upgrades_hear_of_a_node_that_gets_its_driver_from_somebody_else(
    client: Client, runtime: Runtime, machine: str, label: str, value: str | None
) -> None:
    told = 0

    def tell() -> None:
        nonlocal told
        told += 1

    follow_governed(runtime, runtime.cache(Node), tell)
    async with running(runtime):
        await until(lambda: told > 0)
        await until_still(lambda: told, saying="it is told again and again")
        before = told
        await client.patch(Node, machine, {"metadata": {"labels": {"zone": "a"}}})
        await client.patch(Node, machine, {"metadata": {"labels": {label: value}}})
        await until(lambda: told > before)
        assert told == before + 1


async def test_labelling_hears_where_driver_pods_come_and_go(
    client: Client, runtime: Runtime, machine: str, namespace: str
) -> None:
    told: list[str] = []
    pods = DriverPods(runtime, namespace)
    pods.on_change(told.append)
    spec = {"nodeName": machine, "containers": [{"name": "main", "image": "any"}]}
    async with running(runtime):
        for name, app in (("other", "nvidia-dcgm-exporter"), ("driver", DRIVER_APP)):
            await client.create(
                OperandPod, {"metadata": {"name": name, "labels": {"app": app}}, "spec": spec}, namespace
            )
        await until(lambda: pods.on(machine))
        assert told == [machine]
        await client.patch(OperandPod, "driver", {"metadata": {"labels": {"app": "another"}}}, namespace=namespace)
        await until(lambda: not pods.on(machine))
        assert told == [machine, machine]
