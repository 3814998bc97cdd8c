"""The hardware is watched without waiting for it, and let go of when asked."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gpu_control_plane.agent.backends.interface import Backend, DriverUnavailable, Signals
from gpu_control_plane.agent.health import Verdict
from gpu_control_plane.agent.node.watch import HardwareWatch, Quiesced
from gpu_control_plane.agent.recovery import CardHealth
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import break_memory, heal, lose, report_xid
from unit.agent.node.scenes import NODE, first, machine, picture
from waiting import until_async

SEEN = first(picture())


class Below(SimulatedBackend):
    """A simulated backend that remembers whether it is open, and can be without a driver."""

    def __init__(self) -> None:
        super().__init__(NODE, machine())
        self.is_open = False
        self.has_driver = True
        self.threads: set[str] = set()

    def open(self) -> None:
        super().open()
        self.is_open = True
        self.threads.add(threading.current_thread().name)

    def close(self) -> None:
        super().close()
        self.is_open = False

    def signals(self, address: str) -> Signals:
        self.threads.add(threading.current_thread().name)
        if not self.has_driver:
            raise DriverUnavailable("The driver has been unloaded.")
        return super().signals(address)


@asynccontextmanager
async def watching(below: Below, remembered: CardHealth | None = None) -> AsyncIterator[HardwareWatch]:
    watch = HardwareWatch(NODE, lambda: below, lambda _card: remembered or CardHealth(), lambda: None, rhythm=0.3)
    running = asyncio.create_task(watch.run())
    try:
        await until_async(lambda: _done(watch.picture is not None))
        yield watch
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def _done(value: object) -> bool:
    return bool(value)


async def test_news_of_the_driver_are_looked_at_at_once() -> None:
    below = Below()
    async with watching(below) as watch:
        assert watch.verdicts[SEEN.id].healthy
        below.update(report_xid(machine(), SEEN.address, 79))
        await until_async(lambda: _done(not watch.verdicts[SEEN.id].healthy))
        assert watch.verdicts[SEEN.id].reason == "XID79"


async def test_a_mended_card_is_watched_before_it_is_trusted_unless_a_person_clears_it() -> None:
    below = Below()
    async with watching(below) as watch:
        below.update(break_memory(machine(), SEEN.address))
        await until_async(lambda: _done(not watch.verdicts[SEEN.id].healthy))
        below.update(heal(machine(), SEEN.address))
        await asyncio.sleep(0.7)
        assert not watch.verdicts[SEEN.id].healthy
        await watch.probe(frozenset({SEEN.id}))
        assert watch.verdicts[SEEN.id].healthy


async def test_a_new_agent_does_not_heal_a_card_by_restarting() -> None:
    remembered = CardHealth(fault=Verdict(False, "XID79", "It fell off the bus."))
    async with watching(Below(), remembered) as watch:
        assert not watch.verdicts[SEEN.id].healthy


async def test_a_lost_card_is_a_card_and_not_the_end_of_the_look() -> None:
    below = Below()
    async with watching(below) as watch:
        below.update(lose(machine(), SEEN.address))
        await until_async(lambda: _done(not watch.verdicts[SEEN.id].healthy))
        assert watch.verdicts[SEEN.id].reason == "LostFromBus"
        assert watch.picture is not None
        assert len(watch.picture.seen) == 2


async def test_nothing_is_held_open_while_somebody_else_wants_the_driver() -> None:
    below = Below()
    async with watching(below) as watch:
        await watch.let_go()
        assert (below.is_open, watch.quiesced) == (False, True)
        with pytest.raises(Quiesced):
            await watch.call(Backend.cards)
        await watch.probe()
        assert not below.is_open, "a probe must not open it again"
        watch.take_hold()
        await until_async(lambda: _done(below.is_open))
    assert not below.is_open, "the end of the agent closes it"


async def test_a_driver_that_disappears_is_asked_for_again() -> None:
    below = Below()
    async with watching(below) as watch:
        below.has_driver = False
        await watch.probe()
        assert not below.is_open
        below.has_driver = True
        await until_async(lambda: _done(below.is_open))


async def test_the_hardware_is_never_touched_on_the_event_loop() -> None:
    """A driver may take seconds to answer: the kubelet is answered meanwhile."""
    below = Below()
    async with watching(below) as watch:
        await watch.call(Backend.cards)
    assert below.threads == {"hardware_0"}
