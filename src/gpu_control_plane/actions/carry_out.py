"""Carries a plan out, a few objects at a time, and says of each whether it was done.

Every write is bound to the version that was planned on. Where an object has another version by now, but nothing that
the plan rests on has changed, it is written all the same; otherwise it is left alone, and that is said.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from gpu_control_plane.actions.card_progress import CardProgress
from gpu_control_plane.actions.plan import Edit, Plan, basis_of
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.kube.client import EVERYTHING, Client, Selection
from gpu_control_plane.kube.errors import Conflict, KubeError, NotFound
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.following import follow_fleet
from gpu_control_plane.views.reading import Part

IN_FLIGHT: Final = 4
_ATTEMPTS: Final = 5


class Outcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one edit."""

    name: str
    done: bool
    sentence: str | None = None
    """Why it was not done."""
    absent: bool = False
    """Whether the object is gone."""


def _unheard(_outcome: Outcome) -> None:
    pass


async def carry_out(
    client: Client, plan: Plan, *, told: Callable[[Outcome], None] = _unheard, in_flight: int = IN_FLIGHT
) -> tuple[Outcome, ...]:
    """Write what is planned, in any order; `told` hears of each object at once. Errors end up in the outcomes."""
    slots = asyncio.Semaphore(in_flight)

    async def one(edit: Edit) -> Outcome:
        async with slots:
            outcome = await _write(client, edit)
        told(outcome)
        return outcome

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(edit)) for edit in plan.edits]
    return tuple(task.result() for task in running)


async def _write(client: Client, edit: Edit) -> Outcome:
    version = edit.resource_version
    try:
        for _ in range(_ATTEMPTS):
            try:
                await client.patch(edit.target.kind, edit.name, edit.body, resource_version=version)
            except Conflict:
                latest = await client.get(edit.target.kind, edit.name)
                if basis_of(latest) != edit.basis:
                    break
                version = latest.metadata.resource_version
            else:
                return Outcome(name=edit.name, done=True)
    except NotFound as error:
        return Outcome(name=edit.name, done=False, sentence=str(error), absent=True)
    except KubeError as error:
        return Outcome(name=edit.name, done=False, sentence=str(error))
    sentence = "it has been changed meanwhile, and nothing was written: look again, and repeat the command"
    return Outcome(name=edit.name, done=False, sentence=sentence)


async def follow(
    client: Client,
    cards: Collection[str],
    progress: Callable[[GPUDevice], CardProgress],
    told: Callable[[CardProgress], None],
) -> None:
    """Tell where each card stands whenever that changes, until all are done or gone. Ends nothing when it is
    cancelled: the controller goes on."""
    last: dict[str, CardProgress] = {}
    finished = asyncio.Event()

    def show(fleet: Fleet) -> None:
        found = {name: progress(fleet.cards[name]) for name in cards if name in fleet.cards}
        for name, now in found.items():
            if last.get(name) != now:
                last[name] = now
                told(now)
        if all(now.done for now in found.values()):
            finished.set()

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow_fleet(client, show, {Part.CARDS}, cards=_selection(cards)))
        await finished.wait()
        following.cancel()


def _selection(cards: Collection[str]) -> Selection:
    """One card by its name; of several, which may be on many nodes, all."""
    return Selection(fields=f"metadata.name={next(iter(cards))}") if len(cards) == 1 else EVERYTHING
