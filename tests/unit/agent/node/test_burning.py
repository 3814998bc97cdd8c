"""New cards are tested when nobody needs them, once, and whatever comes in between does no harm."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from gpu_control_plane.agent.backends.interface import Process
from gpu_control_plane.agent.burnin.decide import Standing
from gpu_control_plane.agent.burnin.runner import Run
from gpu_control_plane.agent.node.burning import Burner
from gpu_control_plane.agent.node.watch import HardwareWatch
from gpu_control_plane.agent.recovery import CardHealth
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import Machine, break_memory, lose, overheat, swap
from gpu_control_plane.agent.views import Card
from gpu_control_plane.api.names import Annotation, Reason
from unit.agent.node.scenes import NODE, device, first, machine, picture, uuid_of
from waiting import until

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
SEEN = first(picture())
UUID = uuid_of(SEEN)


class Oven:
    """The program: runs until it is told how to end, and keeps account."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.result = asyncio.get_running_loop().create_future()

    async def __call__(self, card: str, _seconds: float, /) -> Run:
        self.begun.append(card)
        try:
            return await asyncio.shield(self.result)
        finally:
            self.ended.append(card)

    def end(self, reason: Reason = Reason.BURN_IN_PASSED, *, busy: bool = False) -> None:
        self.result.set_result(Run(reason=reason, message="Done.", busy=busy))


class Scene:
    """A node's agent as far as burn-in goes, and the GPUDevice of its first card."""

    def __init__(self, below: SimulatedBackend, watch: HardwareWatch) -> None:
        self.below, self.watch = below, watch
        self.oven = Oven()
        self.now = 0.0
        self.results = 0
        self.card = device(SEEN)
        self.orders: dict[str, str] = {}
        self.burner = self.agent()

    def agent(self, *, enabled: bool = True) -> Burner:
        return Burner(
            self.watch,
            self.oven,
            enabled=enabled,
            seconds=60,
            on_result=self._hear,
            now=lambda: NOW,
            looks=0.02,
            monotonic=lambda: self.now,
        )

    def _hear(self) -> None:
        self.results += 1

    async def step(self, obstacle: str | None = None, *cards: Card) -> Standing | None:
        """One reconcile: consider, and write what is to be said."""
        assert self.watch.picture is not None
        seen = self.watch.picture.seen
        said = await self.burner.consider(cards or (self.card,), seen, self.orders, lambda _seen: obstacle)
        standing = said[self.card.name]
        conditions = (standing.says(self.card.status.conditions, NOW),) if standing else ()
        record = standing.record if standing else None
        self.card = replace(self.card, status=replace(self.card.status, conditions=conditions, burn_in=record))
        return standing

    async def reason(self, obstacle: str | None = None) -> str | None:
        standing = await self.step(obstacle)
        return standing.reason if standing else None

    async def ends_as(self) -> str | None:
        await until(lambda: self.results > 0)
        return await self.reason()

    async def change(self, machine: Machine) -> None:
        self.below.update(machine)
        await self.watch.probe()


@asynccontextmanager
async def scene(**hardware: object) -> AsyncIterator[Scene]:
    below = SimulatedBackend(NODE, machine(), **hardware)  # type: ignore[arg-type]
    watch = HardwareWatch(NODE, lambda: below, lambda _card: CardHealth(), lambda: None)
    await watch.probe()
    made = Scene(below, watch)
    async with _running(made.burner):
        yield made
    await watch.let_go()


@asynccontextmanager
async def _running(burner: Burner) -> AsyncIterator[None]:
    task = asyncio.create_task(burner.run())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_a_new_card_is_tested_once() -> None:
    async with scene() as node:
        assert await node.reason() == Reason.BURNING_IN
        assert await node.reason() == Reason.BURNING_IN
        assert node.burner.running == {UUID}
        node.oven.end()
        assert await node.ends_as() == Reason.BURN_IN_PASSED
        assert await node.reason("it is in a pool") == Reason.BURN_IN_PASSED
        assert node.oven.begun == [UUID]
        assert node.card.status.burn_in is not None
        assert (node.card.status.burn_in.uuid, node.card.status.burn_in.ended_at) == (UUID, NOW)


async def test_a_card_that_somebody_needs_waits_and_says_for_what() -> None:
    async with scene() as node:
        standing = await node.step("A pod has it.")
        assert standing is not None
        assert (standing.status, standing.reason, standing.message) == (None, Reason.BURN_IN_WAITING, "A pod has it.")
        assert await node.reason() == Reason.BURNING_IN


async def test_a_program_that_is_no_pods_is_left_alone() -> None:
    async with scene(processes={SEEN.address: (Process(pid=7),)}) as node:
        assert await node.reason() == Reason.BURN_IN_WAITING
        assert node.oven.begun == []


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [(break_memory, Reason.MEMORY_ERRORS), (overheat, Reason.TOO_HOT), (lose, Reason.BURN_IN_FAILED)],
)
async def test_errors_heat_and_loss_end_the_test_at_once(
    break_it: Callable[[Machine, str], Machine], reason: Reason
) -> None:
    async with scene() as node:
        await node.step()
        await until(lambda: node.oven.begun)
        await node.change(break_it(machine(), SEEN.address))
        assert await node.ends_as() == reason
        assert node.oven.ended == [UUID], "the program does not go on"


async def test_what_the_program_finds_is_told_and_stays_until_a_person_clears_it() -> None:
    async with scene() as node:
        await node.step()
        node.oven.end(Reason.COMPUTE_ERRORS)
        assert await node.ends_as() == Reason.COMPUTE_ERRORS
        assert await node.reason() == Reason.COMPUTE_ERRORS
        node.burner.clear((node.card,))
        assert await node.reason() == Reason.BURNING_IN
        await until(lambda: len(node.oven.begun) == 2)


async def test_clearing_a_card_that_passed_changes_nothing() -> None:
    async with scene() as node:
        await node.step()
        node.oven.end()
        await node.ends_as()
        node.burner.clear((node.card,))
        assert await node.reason() == Reason.BURN_IN_PASSED


async def test_whoever_wants_the_driver_gets_it_at_once_and_the_test_begins_anew_later() -> None:
    async with scene() as node:
        await node.step()
        await until(lambda: node.oven.begun)
        await node.burner.break_off()
        await node.watch.let_go()
        assert (node.burner.running, node.oven.ended, node.results) == (frozenset(), [UUID], 0)
        node.watch.take_hold()
        await node.watch.probe()
        assert await node.reason() == Reason.BURNING_IN
        await until(lambda: node.oven.begun == [UUID, UUID])


async def test_a_test_that_is_broken_off_before_it_began_begins_later() -> None:
    async with scene() as node:
        await node.step()
        await node.burner.break_off()
        assert (node.burner.running, node.oven.begun) == (frozenset(), [])
        assert await node.reason() == Reason.BURNING_IN
        await until(lambda: node.oven.begun == [UUID])


async def test_an_agent_that_starts_in_the_middle_begins_anew_and_knows_who_has_passed() -> None:
    async with scene() as node:
        await node.step()
        await until(lambda: node.oven.begun == [UUID])
        await node.burner.break_off()  # the agent before it is gone, and so is its program
        node.burner = node.agent()
        async with _running(node.burner):
            assert await node.reason() == Reason.BURNING_IN
            await until(lambda: node.oven.begun == [UUID, UUID])
            node.oven.end()
            await node.ends_as()
        node.burner = node.agent()
        async with _running(node.burner):
            assert await node.reason() == Reason.BURN_IN_PASSED
        assert len(node.oven.begun) == 2


async def test_another_card_in_the_same_place_is_tested_and_the_old_one_not_again() -> None:
    async with scene() as node:
        await node.step()
        node.oven.end()
        await node.ends_as()
        await node.change(swap(machine(), SEEN.address))
        standing = await node.step()
        assert standing is not None
        assert standing.reason == Reason.BURNING_IN
        assert standing.record.uuid != UUID
        await node.change(machine())
        assert await node.reason() == Reason.BURN_IN_PASSED


async def test_a_card_that_moved_within_its_node_has_passed() -> None:
    async with scene() as node:
        await node.step()
        node.oven.end()
        await node.ends_as()
        elsewhere = replace(node.card, metadata=replace(node.card.metadata, name="somewhere-else"))
        node.burner, node.card = node.agent(), device(SEEN)
        standing = await node.step(None, node.card, elsewhere)
        assert standing is not None
        assert standing.reason == Reason.BURN_IN_PASSED


async def test_a_card_in_a_pool_is_left_alone_also_after_it_has_left() -> None:
    async with scene() as node:
        bare = node.card
        annotated = replace(bare.metadata, annotations={Annotation.ASSIGNMENT: "a"})
        node.card, node.orders = replace(bare, metadata=annotated), {bare.name: "a"}
        assert await node.reason("The card is in a pool.") == Reason.IN_SERVICE
        node.card, node.orders = replace(node.card, metadata=bare.metadata), {}
        assert await node.reason() == Reason.IN_SERVICE
        assert node.oven.begun == []


async def test_switched_off_nothing_is_said_but_what_was_passed() -> None:
    async with scene() as node:
        tested = node.burner
        node.burner = node.agent(enabled=False)
        assert await node.reason() is None
        node.burner = tested
        await node.step()
        node.oven.end()
        await node.ends_as()
        node.burner = node.agent(enabled=False)
        assert await node.reason() == Reason.BURN_IN_PASSED


async def test_a_card_that_somebody_has_to_himself_is_tried_again_later() -> None:
    async with scene() as node:
        await node.step()
        node.oven.end(busy=True)
        assert await node.ends_as() == Reason.BURN_IN_WAITING
        assert await node.reason() == Reason.BURN_IN_WAITING
        node.now += 61
        assert await node.reason() == Reason.BURNING_IN
