"""Cuts cards as their orders ask, each only when something about it has changed."""

import time
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final

import msgspec
import structlog

from gpu_control_plane.agent.backends.interface import Backend, Instance
from gpu_control_plane.agent.mig.apply import Outcome, Result, apply
from gpu_control_plane.agent.mig.layout import Geometry, Slot
from gpu_control_plane.agent.node.books import slot_of
from gpu_control_plane.agent.node.picture import Seen
from gpu_control_plane.agent.node.watch import HardwareWatch
from gpu_control_plane.agent.units import CardID, Unit
from gpu_control_plane.api.allocation import MIG, Mode
from gpu_control_plane.api.gpunodestate import OrderProblem, ProblemReason

RETRY: Final = 10.0
"""Seconds until a card is tried again that the driver, or a program outside of any pod, did not let us cut."""
_LONGEST: Final = 1024
"""Characters of a problem's message that the API takes; the names of many pods may make it longer."""
_LISTED: Final = "pods that may still be given it"
_PROBLEMS: Final = {
    Result.MISCONFIGURED: ProblemReason.MISCONFIGURED,
    Result.WAITING: ProblemReason.WAITING,
    Result.FAILED: ProblemReason.FAILED,
}

_log = structlog.get_logger(component="agent.cutting")


class _Task(msgspec.Struct, frozen=True):
    """Everything an attempt depends on: the same again would end the same way."""

    wish: MIG | None
    instances: tuple[Instance, ...]
    is_cut: bool
    holders: tuple[tuple[Slot, str], ...]
    holder: str | None


class _Done(msgspec.Struct, frozen=True):
    task: _Task
    outcome: Outcome
    at: float


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """How the cards of the node stand."""

    geometries: dict[CardID, Geometry]
    """Which instances each cut card is to offer."""
    problems: tuple[OrderProblem, ...]
    changed: bool
    """Something was done to a card: the last picture is out of date."""
    retry: float | None


class Cutter:
    """Carries out what the orders say about MIG, around everything that is listed or in use."""

    def __init__(self, watch: HardwareWatch, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._watch = watch
        self._monotonic = monotonic
        self._done: dict[CardID, _Done] = {}

    async def cut(
        self,
        wishes: Mapping[CardID, MIG | None],
        cards: Mapping[CardID, Seen],
        listed: Set[Unit],
        held: Mapping[Unit, str],
    ) -> Cut:
        changed = False
        for card, wish in wishes.items():
            task = _task(wish, cards[card], listed, held)
            done = self._done.get(card)
            if done is not None and done.task == task and not self._due(done):
                continue
            outcome, touched = await self._watch.call(_apply, cards[card].address, task)
            if outcome.result is Result.FAILED and done is not None:
                # What was offered so far stays on offer: the card is as it was before.
                outcome = msgspec.structs.replace(outcome, wanted=done.outcome.wanted)
            self._tell(card, outcome, done)
            self._done[card] = _Done(task, outcome, self._monotonic())
            changed = changed or touched
        self._done = {card: done for card, done in self._done.items() if card in wishes}
        outcomes = {card: done.outcome for card, done in self._done.items()}
        return Cut(
            geometries={card: outcome.wanted for card, outcome in outcomes.items()},
            problems=tuple(_problems(outcomes)),
            changed=changed,
            retry=RETRY if any(_unfinished(outcome) for outcome in outcomes.values()) else None,
        )

    def _due(self, done: _Done) -> bool:
        return _unfinished(done.outcome) and self._monotonic() >= done.at + RETRY

    def _tell(self, card: CardID, outcome: Outcome, before: _Done | None) -> None:
        if before is None or before.outcome.reason != outcome.reason or before.outcome.result is not outcome.result:
            _log.info("card cut", card=card, result=outcome.result.value, why=outcome.reason)


def _task(wish: MIG | None, seen: Seen, listed: Set[Unit], held: Mapping[Unit, str]) -> _Task:
    mine = [unit for unit in listed | held.keys() if unit.card == seen.id]
    holders = {slot: held.get(unit, _LISTED) for unit in mine if (slot := slot_of(unit)) is not None}
    whole = sorted(held.get(unit, _LISTED) for unit in mine if unit.mode is not Mode.MIG)
    return _Task(wish, seen.instances, seen.is_cut, tuple(sorted(holders.items())), whole[0] if whole else None)


def _apply(backend: Backend, address: str, task: _Task) -> tuple[Outcome, bool]:
    """The outcome, and whether the card is another one than the task says."""
    outcome = apply(backend, address, task.wish, dict(task.holders), task.holder)
    modes = {card.pci.address: card.mig is not None and card.mig.enabled for card in backend.cards()}
    return outcome, (task.instances, task.is_cut) != (backend.instances(address), modes.get(address))


def _unfinished(outcome: Outcome) -> bool:
    return outcome.result in (Result.WAITING, Result.FAILED)


def _problems(outcomes: Mapping[CardID, Outcome]) -> Iterable[OrderProblem]:
    for card, outcome in sorted(outcomes.items()):
        reason = _PROBLEMS.get(outcome.result)
        if reason is not None:
            yield OrderProblem(inventory_id=card, reason=reason, message=(outcome.reason or "")[:_LONGEST])
