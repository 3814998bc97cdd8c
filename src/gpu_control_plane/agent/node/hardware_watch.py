"""Watches the hardware: a probe at regular intervals, at once when the driver reports something, none while the driver
is released for maintenance.

Every call into the driver is made here, in threads of their own, so that the event loop never waits for hardware. Calls
have a deadline: nothing can end a thread inside a driver that hangs, but everybody else can know of it and go on.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import structlog

from gpu_control_plane.agent.backends.interface import Backend, BackendError, DriverHung, DriverUnavailable
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot, probe_hardware
from gpu_control_plane.agent.timings import HealthTimings
from gpu_control_plane.agent.units import CardID

PROBE_SECONDS: Final = HealthTimings().probe_interval.total_seconds()
"""Time between two probes of a quiet node."""
_WAIT_SECONDS: Final = 1.0
"""How long a wait for the driver's events may take: releasing the driver has to wait for it."""

HUNG_AFTER_PROBES: Final = 3
"""So many probes in a row have to be missing until the driver counts as hung."""
DEAD_AFTER_PROBES: Final = 10
"""And so many until the agent no longer counts as alive: a new process may fare better."""

_RELEASED: Final = "The driver has been released for maintenance."

_HUNG: Final = "A call into the driver does not return."

_log = structlog.get_logger(component="agent.hardware_watch")


class DriverReleased(Exception):
    """The driver has been released: no call may be made into it now."""


class HardwareWatch:
    """The node's hardware as last probed, and the only way to touch it.

    `open_backend` opens whatever can be had at the moment: a driver, or the bare bus. The driver is not opened before
    `acquire_driver` is called. `on_probe` is called after every probe.
    """

    def __init__(
        self,
        node: str,
        open_backend: Callable[[], Backend],
        on_probe: Callable[[], None],
        *,
        interval: float = PROBE_SECONDS,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._open = open_backend
        self._on_probe = on_probe
        self._interval = interval
        self._clock = clock
        self._monotonic = monotonic
        self._stuck: asyncio.Future[Any] | None = None
        """The call that does not return."""
        self._under_way: dict[asyncio.Future[Any], float] = {}
        """The calls into the driver, with the moments when they began."""
        self._stuck_since = 0.0
        self._backend: Backend | None = None
        self._probes = 0
        self._due = 0.0
        self._calls = ThreadPoolExecutor(1, "hardware")
        self._reads = ThreadPoolExecutor(1, "readings")
        self._waits = ThreadPoolExecutor(1, "driver-events")
        self._reading = asyncio.Lock()
        self._waiting = asyncio.Lock()
        self._probing = asyncio.Lock()
        self._wanted = asyncio.Event()
        self.snapshot: HardwareSnapshot | None = None

    @property
    def released(self) -> bool:
        """Whether nothing of the driver is open, and nothing may be."""
        return self._backend is None and not self._wanted.is_set()

    @property
    def hung(self) -> bool:
        """Whether a call into the driver has not returned for several probe intervals."""
        return self._stuck is not None

    def alive(self) -> str | None:
        """What is wrong if the driver has been hung for so long that the agent had better be started anew."""
        hung_for = self._monotonic() - self._stuck_since
        if not self.hung or hung_for < self.deadline(DEAD_AFTER_PROBES):
            return None
        return f"a call into the driver has not returned for {hung_for:.0f} s"

    async def call[*A, R](self, function: Callable[[Backend, *A], R], *arguments: *A) -> R:
        """Do something with the hardware; raises DriverReleased, or what the backend raises."""
        if self._backend is None:
            raise DriverReleased(_RELEASED)
        return await self._in_thread(self._calls, function, self._backend, *arguments)

    async def call_within[*A, R](self, seconds: float, function: Callable[[Backend, *A], R], *arguments: *A) -> R:
        """As `call`, for what somebody waits for: if it takes longer, the driver counts as hung from then on. One pod
        fails for it; the next ones find nothing on offer, and wait."""
        if self._backend is None:
            raise DriverReleased(_RELEASED)
        return await self._in_thread(self._calls, function, self._backend, *arguments, seconds=seconds)

    async def read[*A, R](self, function: Callable[[Backend, *A], R], *arguments: *A) -> R:
        """As `call`, for what takes long and is not urgent: Allocate does not have to wait for it."""
        async with self._reading:
            if self._backend is None:
                raise DriverReleased(_RELEASED)
            return await self._in_thread(self._reads, function, self._backend, *arguments)

    async def run(self) -> None:
        """Probe until cancelled; closes the driver at the end."""
        try:
            while True:
                await self._wanted.wait()
                await self.probe()
                if self._stuck is not None:
                    await asyncio.wait((self._stuck,))
                else:
                    await self._until_due()
        finally:
            await self._close()

    async def release_driver(self) -> None:
        """Close the driver and every device file, and keep them closed. Returns when nothing is open any more."""
        self._wanted.clear()
        async with self._waiting, self._reading, self._probing:
            await self._close()

    def acquire_driver(self) -> None:
        """Probe from now on. What was seen before a release says nothing of the hardware as it is now."""
        self.snapshot = None
        self._wanted.set()

    def probe_by(self, moment: float) -> None:
        """Probe at this time at the latest, in seconds since 1970."""
        self._due = min(self._due, moment)

    async def clear_errors(self, addresses: Iterable[str]) -> None:
        """Forget the error reports of these cards."""
        for address in addresses:
            await self.call(_clear, address)

    async def probe(self, cleared: frozenset[CardID] = frozenset()) -> None:
        """Probe everything now. `cleared` are cards that are said to be repaired: their errors are forgotten first."""
        async with self._probing:
            if not self._wanted.is_set():
                return
            self._due = self._clock() + self._interval
            try:
                snapshot = await self._probe(cleared)
            except DriverHung:
                return  # Who has to know of it was told when that was found out.
            except BackendError as error:
                _log.warning("hardware probe failed", why=str(error))
                await self._close()
                return
            self.snapshot = snapshot
        self._on_probe()

    async def _probe(self, cleared: frozenset[CardID]) -> HardwareSnapshot:
        without_driver = self.snapshot is not None and self.snapshot.node_facts.driver is None
        if self._backend is None or without_driver:
            await self._reopen()
        known = self.snapshot.observed if self.snapshot is not None else {}
        await self.clear_errors(known[card].address for card in sorted(cleared) if card in known)
        self._probes += 1
        try:
            return await self.call(_probe, self._node, self._probes, cleared)
        except DriverUnavailable:
            # It has been unloaded while we used it: what the bus shows is still true.
            await self._reopen()
            return await self.call(_probe, self._node, self._probes, cleared)

    async def _reopen(self) -> None:
        await self._close()
        self._backend = await self._in_thread(self._calls, self._opened)

    def _opened(self) -> Backend:
        backend = self._open()
        backend.open()
        return backend

    async def _until_due(self) -> None:
        """Wait for the driver's events, at most until the next probe is due."""
        while self._wanted.is_set() and (left := self._due - self._clock()) > 0:
            async with self._waiting:
                backend = self._backend
                if backend is None:
                    break
                seconds = min(left, _WAIT_SECONDS)
                limit = seconds + self.deadline(HUNG_AFTER_PROBES)
                try:
                    if await self._in_thread(self._waits, backend.wait, seconds, seconds=limit):
                        return
                except BackendError as error:
                    _log.warning("driver events cannot be read; probing again", why=str(error))
                    break
        if self._wanted.is_set() and (left := self._due - self._clock()) > 0:
            await asyncio.sleep(min(left, _WAIT_SECONDS))

    async def _close(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            await self._in_thread(self._calls, backend.close)

    async def _in_thread[*A, R](
        self,
        threads: ThreadPoolExecutor,
        function: Callable[[*A], R],
        *arguments: *A,
        seconds: float | None = None,
    ) -> R:
        """Call a function of the driver; raises DriverHung when it does not return, and while another does not."""
        if self._stuck is not None:
            raise DriverHung(_HUNG)
        call = asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
        self._under_way[call] = self._monotonic()
        call.add_done_callback(self._under_way.pop)
        limit = self.deadline(HUNG_AFTER_PROBES) if seconds is None else seconds
        done, _ = await asyncio.wait((call,), timeout=limit)
        if done:
            return call.result()
        if self._stuck is None:
            _log.error("a call into the driver does not return", call=getattr(function, "__name__", "call"))
            # What hangs is the oldest call: the others may only wait for their turn.
            self._stuck, self._stuck_since = min(self._under_way.items(), key=lambda item: item[1])
            self._stuck.add_done_callback(self._returned)
            self._on_probe()
        raise DriverHung(_HUNG)

    def _returned(self, call: "asyncio.Future[Any]") -> None:
        error = None if call.cancelled() else call.exception()
        _log.warning("the call into the driver has returned", after=self._monotonic() - self._stuck_since, error=error)
        self._stuck = None
        self._on_probe()

    def deadline(self, probes: int) -> float:
        """Seconds after which so many probes are missing, of which the first is the one under way."""
        return max((probes - 0.5) * self._interval, _WAIT_SECONDS)


def _probe(backend: Backend, node: str, probe: int, cleared: frozenset[CardID]) -> HardwareSnapshot:
    return probe_hardware(node, backend, probe=probe, cleared=cleared)


def _clear(backend: Backend, address: str) -> None:
    backend.clear(address)
