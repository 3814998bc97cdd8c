"""Watches the hardware: a probe in a steady rhythm, at once when the driver has news, and none while it is let go of.

Every call into the driver is made here, in threads of their own, so that the event loop never waits for hardware.
"""

import asyncio
import time
from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from gpu_control_plane.agent.backends.interface import Backend, BackendError, DriverUnavailable
from gpu_control_plane.agent.health import Verdict
from gpu_control_plane.agent.node.picture import Picture, Seen, look
from gpu_control_plane.agent.recovery import CardHealth, judge
from gpu_control_plane.agent.units import CardID

RHYTHM: Final = 15.0
"""Seconds between two probes of a quiet node."""
_PATIENCE: Final = 1.0
"""Seconds that a wait for the driver's news may take: as long as letting go may have to wait for it."""

_AWAY: Final = "The driver has been let go of for maintenance."

_log = structlog.get_logger(component="agent.watch")


class Quiesced(Exception):
    """The driver has been let go of: nothing may touch it now."""


class HardwareWatch:
    """The node's hardware as last seen, and the only way to touch it.

    `open_backend` gives whatever can be had at the moment: a driver, or the bare bus. `recall` tells what an earlier
    agent knew of a card's health. `on_news` is called after every probe.
    """

    def __init__(
        self,
        node: str,
        open_backend: Callable[[], Backend],
        recall: Callable[[CardID], CardHealth],
        on_news: Callable[[], None],
        *,
        rhythm: float = RHYTHM,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._node = node
        self._open = open_backend
        self._recall = recall
        self._on_news = on_news
        self._rhythm = rhythm
        self._clock = clock
        self._backend: Backend | None = None
        self._health: dict[CardID, CardHealth] = {}
        self._calls = ThreadPoolExecutor(1, "hardware")
        self._reads = ThreadPoolExecutor(1, "readings")
        self._waits = ThreadPoolExecutor(1, "driver-news")
        self._reading = asyncio.Lock()
        self._waiting = asyncio.Lock()
        self._working = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._wanted.set()
        self.picture: Picture | None = None
        self.verdicts: dict[CardID, Verdict] = {}

    @property
    def quiesced(self) -> bool:
        """Whether nothing of the driver is held open."""
        return self._backend is None and not self._wanted.is_set()

    def is_healthy(self, card: CardID) -> bool:
        found = self.verdicts.get(card)
        return found is not None and found.healthy

    async def call[*A, R](self, function: Callable[[Backend, *A], R], *arguments: *A) -> R:
        """Do something with the hardware; raises Quiesced, or what the backend raises."""
        if self._backend is None:
            raise Quiesced(_AWAY)
        return await asyncio.get_running_loop().run_in_executor(self._calls, function, self._backend, *arguments)

    async def read[*A, R](self, function: Callable[[Backend, *A], R], *arguments: *A) -> R:
        """As `call`, for what takes long and is not urgent: nobody who hands out cards has to wait for it."""
        async with self._reading:
            if self._backend is None:
                raise Quiesced(_AWAY)
            return await asyncio.get_running_loop().run_in_executor(self._reads, function, self._backend, *arguments)

    async def run(self) -> None:
        """Probe until cancelled; lets go of the driver at the end."""
        try:
            while True:
                await self._wanted.wait()
                due = await self.probe()
                await self._until(due)
        finally:
            await self._close()

    async def let_go(self) -> None:
        """Close the driver and every device file, and keep them closed. Returns when nothing is open any more."""
        self._wanted.clear()
        async with self._waiting, self._reading, self._working:
            await self._close()

    def take_hold(self) -> None:
        """Watch again."""
        self._wanted.set()

    async def probe(self, cleared: Set[CardID] = frozenset()) -> float:
        """Look at everything now; returns when the next look is due. `cleared` are cards that a person has mended."""
        async with self._working:
            if not self._wanted.is_set():
                return self._clock() + self._rhythm
            try:
                picture = await self._look(cleared)
            except BackendError as error:
                _log.warning("the hardware cannot be looked at", why=str(error))
                await self._close()
                return self._clock() + self._rhythm
            due = await self._judge(picture, cleared)
            self.picture = picture
        self._on_news()
        return due

    async def _look(self, cleared: Set[CardID]) -> Picture:
        without_driver = self.picture is not None and self.picture.known_facts.driver is None
        if self._backend is None or without_driver:
            await self._close()
            self._backend = await asyncio.get_running_loop().run_in_executor(self._calls, self._opened)
        for card in cleared & (self.picture.seen.keys() if self.picture else set()):
            await self.call(_clear, self.picture.seen[card].address if self.picture else "")
        try:
            return await self.call(_look, self._node)
        except DriverUnavailable:
            # It has been unloaded under us: what the bus shows is still true.
            await self._close()
            self._backend = await asyncio.get_running_loop().run_in_executor(self._calls, self._opened)
            return await self.call(_look, self._node)

    def _opened(self) -> Backend:
        backend = self._open()
        backend.open()
        return backend

    async def _judge(self, picture: Picture, cleared: Set[CardID]) -> float:
        now = self._clock()
        due = now + self._rhythm
        health: dict[CardID, CardHealth] = {}
        for card in picture.seen.values():
            done = judge(
                self._health.get(card.id) or self._recall(card.id),
                card.signals,
                now,
                cleared=card.id in cleared,
                temperature=card.readings.temperature,
            )
            health[card.id] = done.memory
            self._tell(card, done.verdict)
            self.verdicts[card.id] = done.verdict
            due = min(due, done.next_probe or due)
            if done.forget:
                await self.call(_clear, card.address)
        self._health = health
        self.verdicts = {card: found for card, found in self.verdicts.items() if card in health}
        return due

    def _tell(self, card: Seen, found: Verdict) -> None:
        before = self.verdicts.get(card.id)
        if before is None or before.healthy != found.healthy:
            level = _log.info if found.healthy else _log.warning
            level("card judged", card=card.id, healthy=found.healthy, reason=found.reason, message=found.message)

    async def _until(self, due: float) -> None:
        """Wait for the driver's news, at most until the next probe is due."""
        while self._wanted.is_set() and (left := due - self._clock()) > 0:
            async with self._waiting:
                backend = self._backend
                if backend is None:
                    break
                wait = asyncio.get_running_loop().run_in_executor(self._waits, backend.wait, min(left, _PATIENCE))
                try:
                    if await wait:
                        return
                except BackendError as error:
                    _log.warning("the driver's news cannot be read; looking again", why=str(error))
                    break
        if self._wanted.is_set() and (left := due - self._clock()) > 0:
            await asyncio.sleep(min(left, _PATIENCE))

    async def _close(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            await asyncio.get_running_loop().run_in_executor(self._calls, backend.close)


def _look(backend: Backend, node: str) -> Picture:
    return look(node, backend)


def _clear(backend: Backend, address: str) -> None:
    backend.clear(address)
