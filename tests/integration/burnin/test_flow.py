"""From a new card to one in a pool, with the agent of a node that burns cards in, and real controllers beside it.

Only the kubelet and the cards are played. It needs root, to make the device files of the cards.
"""

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from gpu_control_plane import bootstrap, inventory
from gpu_control_plane.agent.node import process
from gpu_control_plane.agent.node.options import Hardware, Options
from gpu_control_plane.agent.simulated.machine import HARDWARE, Machine, break_memory, new_machine, swap, write_machine
from gpu_control_plane.api import GPUDevice, GPUNodeState, GPUPool, inventory_id
from gpu_control_plane.api.names import Annotation, DeviceCondition, Reason
from gpu_control_plane.api.node import Node
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, Runtime
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.pools import controller as pools
from gpu_control_plane.pools.burnin import FAILED, PASSED, WHO
from gpu_control_plane.pools.pending_reasons import PendingReason
from integration.agent.kubelet_and_books import write_empty_checkpoint
from unit.agent.kubelet.test_podresources import FakePodResources
from waiting import until_async

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 and os.environ.get("CI") != "true", reason="needs root, to make device files"
)

SHORT = 20.0
"""Seconds of a test: one, as it is played."""
LONG = 6000.0
"""So long that no test of ours waits for its end."""


class BurnInNode:
    """A node with one card, its pool, and the agent on it."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.name = f"burn-{secrets.token_hex(3)}"
        self.machine = new_machine("H200-141", 1)
        (self.address,) = self.machine.addresses
        self.card = inventory_id(self.name, self.address)

    async def register(self) -> None:
        await self.client.create(
            Node, {"metadata": {"name": self.name, "annotations": {HARDWARE: write_machine(self.machine)}}}
        )
        selector = {"include": {"inventoryIDs": [self.card]}}
        spec = {"deviceSelector": selector, "assignment": {"requireAnnotation": False}}
        await self.client.create(GPUPool, {"metadata": {"name": self.name}, "spec": spec})

    async def become(self, machine: Machine) -> None:
        await self._annotate(Node, self.name, HARDWARE, write_machine(machine))

    async def clear(self) -> None:
        await self._annotate(GPUDevice, self.card, Annotation.CLEAR_FAULT, "mended")

    async def _annotate(self, kind: type[Node | GPUDevice], name: str, key: str, value: str) -> None:
        await self.client.patch(kind, name, {"metadata": {"annotations": {key: value}}})

    async def device(self) -> GPUDevice:
        return await self.client.get(GPUDevice, self.card)

    async def history(self) -> list[str]:
        return [change.what for change in (await self.device()).status.history if change.who == WHO]

    async def until_history(self, *wanted: str) -> None:
        async def recorded() -> bool:
            return await self.history() == list(wanted)

        await until_async(recorded, saying=f"history: {wanted}")

    async def until_says(self, reason: str) -> GPUDevice:
        async def says() -> bool:
            try:
                device = await self.device()
            except NotFound:
                return False
            found = find(device.status.conditions, DeviceCondition.BURNED_IN)
            return found is not None and found.reason == reason

        await until_async(says, saying=f"BurnedIn: {reason}")
        return await self.device()

    async def until_pooled(self) -> None:
        async def pooled() -> bool:
            try:
                reference = (await self.device()).status.pool_ref
            except NotFound:
                return False
            return reference is not None and reference.name == self.name

        await until_async(pooled, saying="in its pool")

    async def until_waits(self, reason: PendingReason) -> None:
        async def waits() -> bool:
            state = await self.client.get(GPUNodeState, self.name)
            return state.status.pools is not None and [c.reason for c in state.status.pools.pending] == [reason]

        await until_async(waits, saying=f"waits: {reason}")

    @asynccontextmanager
    async def agent(self, seconds: float, *, burn_in: bool = True) -> AsyncIterator[None]:
        options = Options(
            node=self.name,
            hardware=Hardware.SIMULATED,
            burn_in=burn_in,
            burn_in_seconds=seconds,
            kubelet=self.folder,
            cdi=self.folder / "cdi",
            validations=self.folder / "validations",
            simulated_devices=self.folder / "devices",
        )
        runtime = Runtime("test-agent", config=self.client.config, elect=False, status_port=None)
        process.build(runtime, options)
        async with _running(runtime):
            yield


@pytest.fixture
async def node(client: Client) -> AsyncIterator[BurnInNode]:
    """A registered node, a kubelet that gets no requests, and the controllers."""
    await install(client)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="b")))
        for name in ("device-plugins", "pod-resources"):
            (folder / name).mkdir()
        write_empty_checkpoint(folder / "device-plugins")
        await stack.enter_async_context(FakePodResources(folder / "pod-resources").running())
        runtime = Runtime("test-controllers", config=client.config, elect=False, status_port=None)
        for controller in (inventory, bootstrap, pools):
            controller.build(runtime)
        await stack.enter_async_context(_running(runtime))
        made = BurnInNode(client, folder)
        await made.register()
        yield made


@asynccontextmanager
async def _running(runtime: Runtime) -> AsyncIterator[None]:
    task = asyncio.create_task(runtime.run())
    try:
        yield
    finally:
        runtime.stop()
        await asyncio.wait((task,))
        task.result()


async def test_a_new_card_is_tested_then_pooled_and_another_in_its_place_too(node: BurnInNode) -> None:
    async with node.agent(LONG):
        device = await node.until_says(Reason.BURNING_IN)
        await node.until_waits(PendingReason.BURN_IN)
        assert device.status.pool_ref is None
    async with node.agent(SHORT):
        device = await node.until_says(Reason.BURN_IN_PASSED)
        await node.until_pooled()
        await node.until_history(PASSED)
        assert device.status.burn_in is not None
        first = device.status.burn_in.uuid
        await node.become(swap(node.machine, node.address))

        async def changed() -> bool:
            record = (await node.device()).status.burn_in
            return record is not None and record.uuid != first and record.ended_at is not None

        await until_async(changed, saying="the other card was tested")
        await node.until_history(PASSED, PASSED)
        await node.until_pooled()


async def test_a_card_that_breaks_under_test_joins_only_after_it_was_mended_and_passed(node: BurnInNode) -> None:
    async with node.agent(LONG):
        await node.until_says(Reason.BURNING_IN)
        await node.become(break_memory(node.machine, node.address))
        await node.until_says(Reason.MEMORY_ERRORS)
        await node.become(node.machine)
    async with node.agent(SHORT):
        await node.clear()
        await node.until_says(Reason.BURN_IN_PASSED)
        await node.until_pooled()
        await node.until_history(PASSED, f"{FAILED}: {Reason.MEMORY_ERRORS}")
        assert Annotation.CLEAR_FAULT not in (await node.device()).metadata.annotations


async def test_a_card_in_a_pool_is_left_alone_when_burn_in_is_switched_on(node: BurnInNode) -> None:
    async with node.agent(SHORT, burn_in=False):
        await node.until_pooled()
        assert find((await node.device()).status.conditions, DeviceCondition.BURNED_IN) is None
    async with node.agent(SHORT):
        await node.until_says(Reason.IN_SERVICE)
        await node.until_pooled()
    assert await node.history() == []


async def test_whoever_wants_the_driver_gets_it_and_the_test_begins_anew(node: BurnInNode) -> None:
    label = "gpu.deckhouse.io/deploy.agent"
    async with node.agent(LONG):
        first = await node.until_says(Reason.BURNING_IN)
        await node.client.patch(Node, node.name, {"metadata": {"labels": {label: "paused-for-driver-upgrade"}}})

        async def released() -> bool:
            return (await node.client.get(GPUNodeState, node.name)).status.quiesced is not None

        await until_async(released, saying="let go")
        await asyncio.sleep(1.1)  # the begin of a test is recorded in whole seconds
        await node.client.patch(Node, node.name, {"metadata": {"labels": {label: None}}})

        async def again() -> bool:
            was, now = (
                find(each.status.conditions, DeviceCondition.BURNED_IN) for each in (first, await node.device())
            )
            return was is not None and now is not None and was.message != now.message

        await until_async(again, saying="begun anew")
    assert await node.history() == []
