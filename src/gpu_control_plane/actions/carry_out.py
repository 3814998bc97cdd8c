"""Carries a plan out, a few objects at a time, and says of each whether it was done.

Every write is bound to the version that was planned on. Where an object has another version by now, but nothing that
the plan rests on has changed, it is written all the same; otherwise it is left alone, and that is said.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from gpu_control_plane.actions.plan import Edit, Plan, basis_of
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import Conflict, KubeError, NotFound

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
