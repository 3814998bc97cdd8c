"""Runs the burn-in tests that a plan asks for, all at the same time, as the cards will be used later.

A test that was broken off, because the driver is released or the agent ends, has no result, and is begun anew.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

import structlog

from gpu_control_plane.agent.backends.interface import Backend, BackendError, CardLost, Process
from gpu_control_plane.agent.burnin.program import BurnInProgram, ProgramRun
from gpu_control_plane.agent.burnin.results import BurnInResult, Sample, fault_during_test, program_result
from gpu_control_plane.agent.burnin.status import BurnInStatus
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot, ObservedCard
from gpu_control_plane.agent.node.hardware_watch import DriverReleased, HardwareWatch
from gpu_control_plane.agent.step import BurnInSnapshot
from gpu_control_plane.agent.vendors.registry import support_of
from gpu_control_plane.api.gpudevice import BurnIn
from gpu_control_plane.api.names import Reason

_SAMPLE_SECONDS: Final = 1.0
"""Time between two samples of a card that is being tested."""
_RETRY_SECONDS: Final = 60.0
"""Time until a test that could not be made is tried again."""

_log = structlog.get_logger(component="agent.burn_in")


class BurnInRunner:
    """`on_result` is called after every test."""

    def __init__(
        self,
        watch: HardwareWatch,
        run: BurnInProgram,
        *,
        enabled: bool,
        seconds: float,
        on_result: Callable[[], None],
        now: Callable[[], datetime],
        sample_seconds: float = _SAMPLE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = watch
        self._run = run
        self._enabled = enabled
        self._seconds = seconds
        self._on_result = on_result
        self._now = now
        self._sample_seconds = sample_seconds
        self._monotonic = monotonic
        self._group: asyncio.TaskGroup | None = None
        self._running: dict[str, tuple[asyncio.Task[None], str]] = {}
        self._ended: dict[str, BurnInStatus] = {}
        self._postponed: dict[str, tuple[float, str]] = {}

    @property
    def running(self) -> frozenset[str]:
        """UUIDs of the cards that are being tested."""
        return frozenset(self._running)

    async def observe(
        self, hardware: HardwareSnapshot, known: Mapping[str, BurnInStatus], *, checked: bool
    ) -> BurnInSnapshot:
        """How the tests stand. Each result is handed over once; `known` are the results handed over before."""
        ended, self._ended = self._ended, {}
        return BurnInSnapshot(
            enabled=self._enabled,
            seconds=self._seconds,
            ready=self._group is not None,
            checked=checked,
            running={uuid: message for uuid, (_task, message) in self._running.items()},
            ended=ended,
            obstacles=await self._obstacles(hardware, {**known, **ended}) if self._enabled else {},
        )

    def start(self, card: ObservedCard, message: str) -> None:
        """Begin the test of this card, unless it runs already; `message` is what is said of it meanwhile."""
        uuid = card.hardware.uuid
        if self._group is None or uuid is None or uuid in self._running:
            return
        _log.info("burn-in begins", card=card.id, uuid=uuid, seconds=self._seconds)
        self._running[uuid] = self._group.create_task(self._test(uuid, card)), message

    def retry(self, cards: Iterable[ObservedCard]) -> None:
        """A person says that these cards are repaired: what has put their tests off is over."""
        for card in cards:
            self._postponed.pop(card.hardware.uuid or "", None)

    async def run(self) -> None:
        """Test until cancelled; tests that run end then."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._on_result()
                await asyncio.Event().wait()
        finally:
            self._group = None

    async def break_off(self) -> None:
        """End every test, since the driver is to be released. Returns when their processes are gone."""
        running = {uuid: task for uuid, (task, _message) in self._running.items()}
        for task in running.values():
            task.cancel()
        if running:
            await asyncio.wait(running.values())
        for uuid in running:
            self._running.pop(uuid, None)  # one that had not even begun does not do so itself

    async def _obstacles(self, hardware: HardwareSnapshot, known: Mapping[str, BurnInStatus]) -> dict[str, str]:
        """Why cards that are still to be tested cannot be: the last try failed just now, or a process that belongs to
        no pod runs on the card."""
        found: dict[str, str] = {}
        for uuid, card in hardware.by_uuid().items():
            result = known.get(uuid)
            if uuid in self._running or (result is not None and result.status is not None):
                continue
            until, why = self._postponed.get(uuid, (0.0, ""))
            if self._monotonic() < until:
                found[uuid] = why
            elif await self._occupied(card):
                found[uuid] = "A program that is no pod's runs on the card."
        return found

    async def _occupied(self, card: ObservedCard) -> bool:
        try:
            return bool(await self._watch.read(_processes, card.address))
        except (DriverReleased, BackendError):
            return False

    async def _test(self, uuid: str, card: ObservedCard) -> None:
        try:
            found = await self._attempt(uuid, card)
        finally:
            self._running.pop(uuid, None)
        if isinstance(found, BurnInResult):
            level = _log.info if found.passed else _log.warning
            level("burn-in ended", card=card.id, uuid=uuid, reason=str(found.reason), message=found.message)
            record = BurnIn(uuid=uuid, ended_at=self._now().replace(microsecond=0))
            self._ended[uuid] = BurnInStatus(
                status=found.passed, reason=found.reason, message=found.message, record=record
            )
        else:
            _log.info("burn-in was put off", card=card.id, uuid=uuid, why=found)
            self._postponed[uuid] = self._monotonic() + _RETRY_SECONDS, found
        self._on_result()

    async def _attempt(self, uuid: str, card: ObservedCard) -> BurnInResult | str:
        """How the test ended, or why it could not be made."""
        try:
            before = await self._sample(card)
            program = asyncio.create_task(self._run(uuid, self._seconds))
            try:
                return await self._follow(program, before, card)
            finally:
                program.cancel()
                await asyncio.wait((program,))
        except CardLost as error:
            return BurnInResult(Reason.BURN_IN_FAILED, f"During the test: {error} Reseat it, then clear the fault.")
        except (DriverReleased, BackendError) as error:
            return str(error)

    async def _follow(
        self, program: "asyncio.Task[ProgramRun]", before: Sample, card: ObservedCard
    ) -> BurnInResult | str:
        """Sample the card while the program runs; what the card shows counts more than what the program says."""
        hottest = before.readings.temperature
        while True:
            done, _pending = await asyncio.wait((program,), timeout=self._sample_seconds)
            now = await self._sample(card)
            if (shown := fault_during_test(before.signals, now, support_of(card.hardware.vendor).health)) is not None:
                return shown
            hottest = max((each for each in (hottest, now.readings.temperature) if each is not None), default=None)
            if done:
                ended = program.result()
                return (
                    f"Another process has the card exclusively: {ended.message}"
                    if ended.busy
                    else program_result(ended, hottest)
                )

    async def _sample(self, card: ObservedCard) -> Sample:
        """A test that is broken off must not leave a call into the driver behind: the sample is taken to its end."""
        return await asyncio.shield(self._watch.read(_sample, card.address))


def _sample(backend: Backend, address: str) -> Sample:
    return Sample(backend.signals(address), backend.readings(address))


def _processes(backend: Backend, address: str) -> tuple[Process, ...]:
    return backend.processes(address)
