"""Has new cards of the node burned in: those that nobody uses, all at the same time, as they will be used later.

What is going on is remembered here, and so is how a test ended, until the card's status says so. A test that was
broken off, because somebody wants the driver or the agent ends, has told nothing, and begins anew.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

import structlog

from gpu_control_plane.agent.backends.interface import Backend, BackendError, CardLost, Process
from gpu_control_plane.agent.burnin.decide import Facts, Standing, begun, decide, in_pool, told, waiting
from gpu_control_plane.agent.burnin.judge import Outcome, Sample, noticed, outcome
from gpu_control_plane.agent.burnin.runner import Run, Runner
from gpu_control_plane.agent.node.picture import Seen
from gpu_control_plane.agent.node.watch import HardwareWatch, Quiesced
from gpu_control_plane.agent.units import CardID
from gpu_control_plane.agent.views import Card
from gpu_control_plane.api.gpudevice import BurnIn
from gpu_control_plane.api.names import Reason

_LOOKS: Final = 1.0
"""Seconds between two looks at a card that is being tested."""
_PAUSE: Final = 60.0
"""Seconds until a test that could not be made is tried again."""

_log = structlog.get_logger(component="agent.burn-in")


class Burner:
    """Knows how far the burn-in of each card is, and carries it out.

    `after_checks` says whether the node is checked, which comes first. `on_result` is called after every test.
    """

    def __init__(
        self,
        watch: HardwareWatch,
        run: Runner,
        *,
        enabled: bool,
        seconds: float,
        after_checks: bool = True,
        on_result: Callable[[], None],
        now: Callable[[], datetime],
        looks: float = _LOOKS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = watch
        self._run = run
        self._enabled = enabled
        self._seconds = seconds
        self.after_checks = after_checks
        self._on_result = on_result
        self._now = now
        self._looks = looks
        self._monotonic = monotonic
        self._group: asyncio.TaskGroup | None = None
        self._running: dict[str, tuple[asyncio.Task[None], str]] = {}
        self._known: dict[str, Standing] = {}
        self._postponed: dict[str, tuple[float, str]] = {}

    @property
    def running(self) -> frozenset[str]:
        """UUIDs of the cards that are being tested."""
        return frozenset(self._running)

    async def consider(
        self,
        cards: Iterable[Card],
        seen: Mapping[CardID, Seen],
        pools: Mapping[CardID, str],
        obstacle: Callable[[Seen], str | None],
    ) -> dict[CardID, Standing | None]:
        """What is to be said of each card; tests begin where they are due and `obstacle` knows of none.

        `pools` are those that cards are ordered into.
        """
        cards = tuple(cards)
        self._recall(cards)
        return {
            card.name: await self._of(card, seen[card.name], pools.get(card.name), obstacle)
            for card in cards
            if card.name in seen
        }

    def clear(self, cards: Iterable[Card]) -> None:
        """A person says that these cards are mended: a test that they failed is made again."""
        cards = tuple(cards)
        self._recall(cards)
        for uuid in {card.status.burn_in.uuid for card in cards if card.status.burn_in}:
            if self._known[uuid].status is False:
                self._known[uuid] = waiting(uuid, "It is made again.")
                self._postponed.pop(uuid, None)

    async def run(self) -> None:
        """Test until cancelled; whatever is under way ends then."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await asyncio.Event().wait()
        finally:
            self._group = None

    async def break_off(self) -> None:
        """Somebody wants the driver, now: end every test. Returns when their processes are gone."""
        running = {uuid: task for uuid, (task, _message) in self._running.items()}
        for task in running.values():
            task.cancel()
        if running:
            await asyncio.wait(running.values())
        for uuid in running:
            self._running.pop(uuid, None)  # one that had not even begun does not do so itself

    def _recall(self, cards: Iterable[Card]) -> None:
        """A card is known by its UUID wherever it is: what was said of it moves with it. Tests end here first."""
        for card in cards:
            said = told(card)
            if said is not None and said.record.uuid not in self._known:
                self._known[said.record.uuid] = said

    async def _of(
        self, card: Card, seen: Seen, pool: str | None, obstacle: Callable[[Seen], str | None]
    ) -> Standing | None:
        uuid = seen.hardware.uuid
        running = self._running.get(uuid or "")
        facts = Facts(
            uuid=uuid,
            known=self._known.get(uuid) if uuid else told(card),
            in_pool=in_pool(card, uuid, pool),
            running=running[1] if running else None,
            obstacle=self._hindrance(uuid) or obstacle(seen),
        )
        standing = decide(facts, enabled=self._enabled)
        if standing is None or uuid is None:
            return standing
        if standing.due and await self._occupied(seen):
            standing = waiting(uuid, "A program that is no pod's runs on the card.")
        if standing.due and self._group is not None:
            standing = self._begin(self._group, uuid, seen)
        self._known[uuid] = standing
        return standing

    async def _occupied(self, seen: Seen) -> bool:
        """Whether somebody uses the card whom the kubelet does not know."""
        try:
            return bool(await self._watch.read(_programs, seen.address))
        except (Quiesced, BackendError):
            return False

    def _hindrance(self, uuid: str | None) -> str | None:
        until, why = self._postponed.get(uuid or "", (0.0, ""))
        return why if self._monotonic() < until else None

    def _begin(self, group: asyncio.TaskGroup, uuid: str, seen: Seen) -> Standing:
        message = f"The card is tested for {self._seconds:g} s, from {self._now():%Y-%m-%dT%H:%M:%SZ} on."
        _log.info("burn-in begins", card=seen.id, uuid=uuid, seconds=self._seconds)
        self._running[uuid] = group.create_task(self._burn(uuid, seen)), message
        return begun(uuid, message)

    async def _burn(self, uuid: str, seen: Seen) -> None:
        try:
            found = await self._attempt(uuid, seen)
        finally:
            self._running.pop(uuid, None)
        if isinstance(found, Outcome):
            level = _log.info if found.passed else _log.warning
            level("burn-in ended", card=seen.id, uuid=uuid, reason=str(found.reason), message=found.message)
            record = BurnIn(uuid=uuid, ended_at=self._now().replace(microsecond=0))
            self._known[uuid] = Standing(status=found.passed, reason=found.reason, message=found.message, record=record)
        else:
            _log.info("burn-in was put off", card=seen.id, uuid=uuid, why=found)
            self._postponed[uuid] = self._monotonic() + _PAUSE, found
        self._on_result()

    async def _attempt(self, uuid: str, seen: Seen) -> Outcome | str:
        """How the test ended, or why it could not be made."""
        try:
            before = await self._look(seen)
            program = asyncio.create_task(self._run(uuid, self._seconds))
            try:
                return await self._follow(program, before, seen)
            finally:
                program.cancel()
                await asyncio.wait((program,))
        except CardLost as error:
            return Outcome(Reason.BURN_IN_FAILED, f"During the test: {error} Reseat it, then clear the fault.")
        except (Quiesced, BackendError) as error:
            return str(error)

    async def _follow(self, program: "asyncio.Task[Run]", before: Sample, seen: Seen) -> Outcome | str:
        """Watch the card while the program runs; what it shows counts more than what the program says."""
        hottest = before.readings.temperature
        while True:
            done, _pending = await asyncio.wait((program,), timeout=self._looks)
            now = await self._look(seen)
            if (shown := noticed(before.signals, now)) is not None:
                return shown
            hottest = max((each for each in (hottest, now.readings.temperature) if each is not None), default=None)
            if done:
                ended = program.result()
                return f"Somebody has the card to himself: {ended.message}" if ended.busy else outcome(ended, hottest)

    async def _look(self, seen: Seen) -> Sample:
        """Whoever breaks the test off must not leave a call into the driver behind: the look is made to its end."""
        return await asyncio.shield(self._watch.read(_sample, seen.address))


def _sample(backend: Backend, address: str) -> Sample:
    return Sample(backend.signals(address), backend.readings(address))


def _programs(backend: Backend, address: str) -> tuple[Process, ...]:
    return backend.processes(address)
