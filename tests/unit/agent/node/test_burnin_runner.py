"""New cards are tested when no pod needs them, once, and whatever comes in between does no harm."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from gpu_control_plane.agent.backends.interface import Process
from gpu_control_plane.agent.burnin.program import ProgramRun
from gpu_control_plane.agent.burnin.status import BurnInStatus
from gpu_control_plane.agent.node.burnin_runner import BurnInRunner
from gpu_control_plane.agent.node.hardware_watch import HardwareWatch
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import Machine, break_memory, lose, overheat, swap
from gpu_control_plane.agent.step import KubeletSnapshot, NodeMemory, NodeSnapshot, decide
from gpu_control_plane.agent.views import DeviceView, NodeStateView, NodeView
from gpu_control_plane.api.gpunodestate import NodeStateSpec
from gpu_control_plane.api.names import Annotation, Reason
from gpu_control_plane.kube.objects import ObjectMeta
from unit.agent.step.builders import NODE, NOW, device, exclusive, first, hardware, machine, uuid_of
from waiting import until

CARD = first(hardware())
UUID = uuid_of(CARD)


class FakeProgram:
    """The burn-in program: runs until the test says how it ends, and records what it was called with."""

    def __init__(self) -> None:
        self.status_running: list[str] = []
        self.ended: list[str] = []
        self.result = asyncio.get_running_loop().create_future()

    async def __call__(self, card: str, _seconds: float, /) -> ProgramRun:
        self.status_running.append(card)
        try:
            return await asyncio.shield(self.result)
        finally:
            self.ended.append(card)

    def end(self, reason: Reason = Reason.BURN_IN_PASSED, *, busy: bool = False) -> None:
        self.result.set_result(ProgramRun(reason=reason, message="Done.", busy=busy))


class BurnInModel:
    """An agent as far as burn-in goes, and the GPUDevice of its first card."""

    def __init__(self, backend: SimulatedBackend, watch: HardwareWatch) -> None:
        self.backend, self.watch = backend, watch
        self.program = FakeProgram()
        self.now = 0.0
        self.results = 0
        self.device = device(CARD)
        self.ordered = False
        self.begin()

    def begin(self, *, enabled: bool = True) -> BurnInRunner:
        """A new agent, which remembers nothing."""
        self.memory = replace(NodeMemory(), advertised={})
        self.runner = BurnInRunner(
            self.watch,
            self.program,
            enabled=enabled,
            seconds=60,
            on_result=self._count,
            now=lambda: NOW,
            sample_seconds=0.02,
            monotonic=lambda: self.now,
        )
        return self.runner

    def _count(self) -> None:
        self.results += bool(self.runner._ended or self.runner._postponed)

    async def step(self, *devices: DeviceView, checked: bool = True) -> BurnInStatus | None:
        """One reconcile: decide, start what is due, and write the card's status."""
        seen = self.watch.snapshot
        assert seen is not None
        orders = (exclusive(self.device.name),) if self.ordered else ()
        plan = decide(
            NodeSnapshot(
                now=NOW,
                monotonic=self.now,
                node=NodeView(metadata=ObjectMeta(name=NODE)),
                state=NodeStateView(metadata=ObjectMeta(name=NODE), spec=NodeStateSpec(assignments=orders)),
                devices=devices or (self.device,),
                hardware=seen,
                kubelet=KubeletSnapshot(),
                burn_in=await self.runner.observe(seen, self.memory.tested, checked=checked),
            ),
            self.memory,
        )
        self.memory = replace(plan.memory, advertised={})
        for card, message in plan.burn_in_starts.items():
            self.runner.start(seen.observed[card], message)
        standing = plan.burn_ins[self.device.name]
        conditions = (standing.as_condition(self.device.status.conditions, NOW),) if standing else ()
        record = standing.record if standing else None
        self.device = replace(self.device, status=replace(self.device.status, conditions=conditions, burn_in=record))
        return standing

    async def reason(self, *, checked: bool = True) -> str | None:
        standing = await self.step(checked=checked)
        return standing.reason if standing else None

    async def ends_as(self) -> str | None:
        await until(lambda: self.results > 0)
        return await self.reason()

    async def clear(self) -> None:
        """A person says that the card is repaired."""
        self.runner.retry((CARD,))
        await self.watch.probe(frozenset({self.device.name}))

    async def change(self, machine: Machine) -> None:
        self.backend.update(machine)
        await self.watch.probe()


@asynccontextmanager
async def burning_in(**options: object) -> AsyncIterator[BurnInModel]:
    backend = SimulatedBackend(NODE, machine(), **options)  # type: ignore[arg-type]
    watch = HardwareWatch(NODE, lambda: backend, lambda: None)
    watch.acquire_driver()
    await watch.probe()
    node = BurnInModel(backend, watch)
    async with _running(node.runner):
        yield node
    await watch.release_driver()


@asynccontextmanager
async def _running(runner: BurnInRunner) -> AsyncIterator[None]:
    task = asyncio.create_task(runner.run())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_a_new_card_is_tested_once() -> None:
    async with burning_in() as node:
        assert await node.reason() == Reason.BURNING_IN
        assert await node.reason() == Reason.BURNING_IN
        assert node.runner.running == {UUID}
        node.program.end()
        assert await node.ends_as() == Reason.BURN_IN_PASSED
        node.ordered = True
        assert await node.reason() == Reason.BURN_IN_PASSED
        assert node.program.status_running == [UUID]
        assert node.device.status.burn_in is not None
        assert (node.device.status.burn_in.uuid, node.device.status.burn_in.ended_at) == (UUID, NOW)


async def test_a_card_that_cannot_be_tested_waits_and_says_for_what() -> None:
    async with burning_in() as node:
        standing = await node.step(checked=False)
        assert standing is not None
        assert (standing.status, standing.reason) == (None, Reason.BURN_IN_WAITING)
        assert standing.message == "The checks of the node's driver come first."
        assert await node.reason() == Reason.BURNING_IN


async def test_a_card_with_a_process_that_belongs_to_no_pod_is_left_alone() -> None:
    async with burning_in(processes={CARD.address: (Process(pid=7),)}) as node:
        assert await node.reason() == Reason.BURN_IN_WAITING
        assert node.program.status_running == []


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [(break_memory, Reason.MEMORY_ERRORS), (overheat, Reason.TOO_HOT), (lose, Reason.BURN_IN_FAILED)],
)
async def test_errors_heat_and_loss_end_the_test_at_once(
    break_it: Callable[[Machine, str], Machine], reason: Reason
) -> None:
    async with burning_in() as node:
        await node.step()
        await until(lambda: node.program.status_running)
        await node.change(break_it(machine(), CARD.address))
        assert await node.ends_as() == reason
        assert node.program.ended == [UUID], "the program does not go on"


async def test_what_the_program_finds_is_reported_and_stays_until_a_person_clears_it() -> None:
    async with burning_in() as node:
        await node.step()
        node.program.end(Reason.COMPUTE_ERRORS)
        assert await node.ends_as() == Reason.COMPUTE_ERRORS
        assert await node.reason() == Reason.COMPUTE_ERRORS
        await node.clear()
        assert await node.reason() == Reason.BURNING_IN
        await until(lambda: len(node.program.status_running) == 2)


async def test_a_test_that_fails_again_after_it_was_cleared_is_not_made_a_third_time() -> None:
    async with burning_in() as node:
        await node.step()
        node.program.end(Reason.COMPUTE_ERRORS)
        await node.ends_as()
        await node.clear()
        await node.step()
        await until(lambda: not node.runner.running)
        assert [await node.reason() for _ in range(2)] == [Reason.COMPUTE_ERRORS, Reason.COMPUTE_ERRORS]
        assert len(node.program.status_running) == 2


async def test_clearing_a_card_that_passed_changes_nothing() -> None:
    async with burning_in() as node:
        await node.step()
        node.program.end()
        await node.ends_as()
        await node.clear()
        assert await node.reason() == Reason.BURN_IN_PASSED


async def test_the_driver_is_released_at_once_and_the_test_begins_anew_later() -> None:
    async with burning_in() as node:
        await node.step()
        await until(lambda: node.program.status_running)
        await node.runner.break_off()
        await node.watch.release_driver()
        assert (node.runner.running, node.program.ended, node.results) == (frozenset(), [UUID], 0)
        node.watch.acquire_driver()
        await node.watch.probe()
        assert await node.reason() == Reason.BURNING_IN
        await until(lambda: node.program.status_running == [UUID, UUID])


async def test_a_test_that_is_broken_off_before_it_began_begins_later() -> None:
    async with burning_in() as node:
        await node.step()
        await node.runner.break_off()
        assert (node.runner.running, node.program.status_running) == (frozenset(), [])
        assert await node.reason() == Reason.BURNING_IN
        await until(lambda: node.program.status_running == [UUID])


async def test_an_agent_that_starts_in_the_middle_begins_anew_and_knows_which_cards_have_passed() -> None:
    async with burning_in() as node:
        await node.step()
        await until(lambda: node.program.status_running == [UUID])
        await node.runner.break_off()  # the agent before it is gone, and so is its program
        async with _running(node.begin()):
            assert await node.reason() == Reason.BURNING_IN
            await until(lambda: node.program.status_running == [UUID, UUID])
            node.program.end()
            await node.ends_as()
        async with _running(node.begin()):
            assert await node.reason() == Reason.BURN_IN_PASSED
        assert len(node.program.status_running) == 2


async def test_another_card_in_the_same_place_is_tested_and_the_old_one_not_again() -> None:
    async with burning_in() as node:
        await node.step()
        node.program.end()
        await node.ends_as()
        await node.change(swap(machine(), CARD.address))
        node.device = replace(node.device, status=replace(node.device.status, hardware=None))
        standing = await node.step()
        assert standing is not None
        assert standing.reason == Reason.BURNING_IN
        assert standing.record.uuid != UUID
        await node.change(machine())
        assert await node.reason() == Reason.BURN_IN_PASSED


async def test_a_card_that_moved_within_its_node_has_passed() -> None:
    async with burning_in() as node:
        await node.step()
        node.program.end()
        await node.ends_as()
        elsewhere = replace(node.device, metadata=replace(node.device.metadata, name="somewhere-else"))
        node.begin()
        node.device = device(CARD)
        standing = await node.step(node.device, elsewhere)
        assert standing is not None
        assert standing.reason == Reason.BURN_IN_PASSED


async def test_a_card_in_a_pool_is_left_alone_also_after_it_has_left() -> None:
    async with burning_in() as node:
        bare = node.device
        node.device = replace(bare, metadata=replace(bare.metadata, annotations={Annotation.ASSIGNMENT: "training"}))
        node.ordered = True
        assert await node.reason() == Reason.IN_SERVICE
        node.device, node.ordered = replace(node.device, metadata=bare.metadata), False
        assert await node.reason() == Reason.IN_SERVICE
        assert node.program.status_running == []


async def test_switched_off_only_what_was_passed_is_reported() -> None:
    async with burning_in() as node:
        tested = node.runner
        node.begin(enabled=False)
        assert await node.reason() is None
        node.runner = tested
        await node.step()
        node.program.end()
        await node.ends_as()
        node.begin(enabled=False)
        assert await node.reason() == Reason.BURN_IN_PASSED


async def test_a_card_that_another_process_has_to_itself_is_tried_again_later() -> None:
    async with burning_in() as node:
        await node.step()
        node.program.end(busy=True)
        assert await node.ends_as() == Reason.BURN_IN_WAITING
        assert await node.reason() == Reason.BURN_IN_WAITING
        node.now += 61
        assert await node.reason() == Reason.BURNING_IN
