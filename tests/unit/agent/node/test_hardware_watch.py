"""The hardware is probed without blocking the event loop, and released when that is asked for."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from gpu_control_plane.agent.backends.interface import Backend, DriverHung, DriverUnavailable, Signals
from gpu_control_plane.agent.hardware_snapshot import ObservedCard
from gpu_control_plane.agent.node.hardware_watch import (
    DEAD_AFTER_PROBES,
    HUNG_AFTER_PROBES,
    DriverReleased,
    HardwareWatch,
)
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import lose, report_xid
from unit.agent.step.builders import NODE, first, hardware, machine
from waiting import until

CARD = first(hardware())


class FakeBackend(SimulatedBackend):
    """A simulated backend that remembers whether it is open, and can be without a driver."""

    def __init__(self) -> None:
        super().__init__(NODE, machine())
        self.is_open = False
        self.has_driver = True
        self.threads: set[str] = set()
        self.answers = threading.Event()
        self.answers.set()

    def open(self) -> None:
        super().open()
        self.is_open = True
        self.threads.add(threading.current_thread().name)

    def close(self) -> None:
        super().close()
        self.is_open = False

    def signals(self, address: str) -> Signals:
        self.threads.add(threading.current_thread().name)
        self.answers.wait(60)
        if not self.has_driver:
            raise DriverUnavailable("The driver has been unloaded.")
        return super().signals(address)


class Watched:
    """A watch that runs, and how often it has probed."""

    def __init__(self, backend: FakeBackend, interval: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.probes = 0
        self.watch = HardwareWatch(NODE, lambda: backend, self._count, interval=interval, monotonic=monotonic)

    def _count(self) -> None:
        self.probes += 1

    @property
    def card(self) -> ObservedCard:
        assert self.watch.snapshot is not None
        return self.watch.snapshot.observed[CARD.id]


@asynccontextmanager
async def watching(backend: FakeBackend, interval: float = 300.0) -> AsyncIterator[Watched]:
    watched = Watched(backend, interval)
    running = asyncio.create_task(watched.watch.run())
    watched.watch.acquire_driver()
    try:
        await until(lambda: watched.probes)
        yield watched
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def test_the_driver_is_not_opened_before_it_is_acquired() -> None:
    backend = FakeBackend()
    watch = HardwareWatch(NODE, lambda: backend, lambda: None)
    await watch.probe()
    assert (backend.is_open, watch.released, watch.snapshot) == (False, True, None)


async def test_a_report_of_the_driver_is_probed_at_once() -> None:
    backend = FakeBackend()
    async with watching(backend) as watched:
        backend.update(report_xid(machine(), CARD.address, 79))
        await until(lambda: watched.card.signals.xids == (79,))


async def test_a_probe_can_be_asked_for_earlier_than_the_interval() -> None:
    async with watching(FakeBackend()) as watched:
        watched.watch.probe_by(0.0)
        await until(lambda: watched.probes > 1)


async def test_each_probe_has_a_number_of_its_own_and_says_whose_errors_were_cleared() -> None:
    backend = FakeBackend()
    async with watching(backend) as watched:
        backend.update(report_xid(machine(), CARD.address, 95))
        await until(lambda: watched.card.signals.xids == (95,))
        assert watched.watch.snapshot is not None
        before = watched.watch.snapshot.probe
        await watched.watch.probe(frozenset({CARD.id}))
        assert watched.watch.snapshot.probe > before
        assert watched.watch.snapshot.cleared == {CARD.id}
        assert (watched.card.signals.xids, watched.card.signals.clears) == ((), 1)


async def test_a_lost_card_is_a_card_and_not_the_end_of_the_probe() -> None:
    backend = FakeBackend()
    async with watching(backend) as watched:
        backend.update(lose(machine(), CARD.address))
        await until(lambda: watched.card.signals.lost)
        assert watched.watch.snapshot is not None
        assert len(watched.watch.snapshot.observed) == 2


async def test_nothing_is_open_while_the_driver_is_released() -> None:
    backend = FakeBackend()
    async with watching(backend) as watched:
        watch = watched.watch
        await watch.release_driver()
        assert (backend.is_open, watch.released) == (False, True)
        with pytest.raises(DriverReleased):
            await watch.call(Backend.cards)
        await watch.probe()
        assert not backend.is_open, "a probe must not open it again"
        watch.acquire_driver()
        assert watch.snapshot is None, "what was seen before says nothing of what is there now"
        await until(lambda: backend.is_open)
    assert not backend.is_open, "the end of the agent closes it"


async def test_a_driver_that_disappears_is_opened_again() -> None:
    backend = FakeBackend()
    async with watching(backend, interval=0.1) as watched:
        backend.has_driver = False
        await watched.watch.probe()
        assert not backend.is_open
        backend.has_driver = True
        await until(lambda: backend.is_open)


async def test_the_hardware_is_never_touched_on_the_event_loop() -> None:
    """A driver may take seconds to answer: the kubelet is answered meanwhile."""
    backend = FakeBackend()
    async with watching(backend) as watched:
        await watched.watch.call(Backend.cards)
    assert backend.threads == {"hardware_0"}


async def test_a_call_that_does_not_return_is_noticed_after_three_missed_probes_and_told_of_after_ten() -> None:
    """With an interval of 15 s the units are unhealthy within 45 s, and liveness fails within 150 s."""
    interval, now = 0.1, [0.0]
    backend = FakeBackend()
    watched = Watched(backend, interval, monotonic=lambda: now[0])
    running = asyncio.create_task(watched.watch.run())
    watched.watch.acquire_driver()
    try:
        await until(lambda: watched.probes)
        backend.answers.clear()
        began = time.monotonic()
        await until(lambda: watched.watch.hung)
        assert time.monotonic() - began >= 2 * interval, "two missed probes are not enough"
        before = watched.probes
        with pytest.raises(DriverHung):
            await watched.watch.call(Backend.cards)
        with pytest.raises(DriverHung):
            await watched.watch.read(Backend.cards)
        now[0] = 9 * interval
        assert watched.watch.alive() is None
        now[0] = 10 * interval
        assert "not returned" in (watched.watch.alive() or "")
        backend.answers.set()
        await until(lambda: not watched.watch.hung and watched.probes > before + 1)
        assert watched.watch.alive() is None
    finally:
        backend.answers.set()
        running.cancel()
        await asyncio.wait((running,))


async def test_hung_and_dead_are_called_so_within_their_limits() -> None:
    watch = HardwareWatch(NODE, FakeBackend, lambda: None, interval=15.0)
    assert watch.deadline(HUNG_AFTER_PROBES) <= 45
    assert watch.deadline(DEAD_AFTER_PROBES) <= 150


async def test_an_allocation_that_waits_too_long_for_the_driver_is_the_last_one_to_be_lost() -> None:
    """What hangs is the probe that began before, so the time until liveness fails counts from that one."""
    backend, now = FakeBackend(), [0.0]
    watched = Watched(backend, 300.0, monotonic=lambda: now[0])
    running = asyncio.create_task(watched.watch.run())
    watched.watch.acquire_driver()
    try:
        await until(lambda: watched.probes)
        backend.answers.clear()
        probing = asyncio.create_task(watched.watch.probe())
        await asyncio.sleep(0)
        now[0] = 100.0
        with pytest.raises(DriverHung):
            await watched.watch.call_within(0.05, Backend.cards)
        assert watched.watch.hung
        assert watched.probes == 2, "the agent is woken to tell the kubelet"
        now[0] = 9.6 * 300
        assert "2880 s" in (watched.watch.alive() or "")
        backend.answers.set()
        await probing
        await until(lambda: not watched.watch.hung)
    finally:
        backend.answers.set()
        running.cancel()
        await asyncio.wait((running,))
