"""Carries a restore out: cards first, then pools, and says of each object whether it was done.

Nothing is written over something that the plan has not seen: new objects are created, others replaced only in the
version that was planned on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from gpu_control_plane.actions.carry_out import IN_FLIGHT, Outcome, carry_out
from gpu_control_plane.actions.plan import Refusal
from gpu_control_plane.backup.restore import Kind, RestorePlan, Write, spec_of
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import ApiError, Conflict, KubeError
from gpu_control_plane.kube.merge_patch import merge_patch

_ATTEMPTS: Final = 5
_A_SECOND: Final = 1.1
"""What it takes for the next object to have a younger timestamp."""


async def carry_out_restore(
    client: Client,
    plan: RestorePlan,
    *,
    told: Callable[[Outcome], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> tuple[Outcome, ...]:
    """Write what is planned; `told` hears of each object at once. Errors end up in the outcomes."""
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def write(each: Write) -> Outcome:
        async with slots:
            outcome = await _written(client, each)
        told(outcome)
        return outcome

    awaited = await asyncio.gather(*(write(each) for each in plan.awaited))
    cards = await carry_out(client, plan.cards, told=told)
    objects = []
    before: Write | None = None
    for each in plan.objects:
        if before is not None and before.kind is each.kind is Kind.POOL and each.name < before.name:
            await sleep(_A_SECOND)  # timestamps have whole seconds, and of two of the same the names decide
        objects.append(await write(each))
        before = each
    return (*awaited, *cards, *objects)


async def check_restore(client: Client, plan: RestorePlan) -> RestorePlan:
    """The plan without what the API server would refuse. Nothing is written."""
    refusals = list(plan.cards.refusals)
    objects = []
    for each in plan.objects:
        body = {"metadata": {}, "spec": each.spec}
        try:
            await client.validate(each.kind.type, body, name=each.name, resource_version=each.resource_version)
        except ApiError as error:
            refusals.append(Refusal(name=str(each), sentence=str(error)))
        else:
            objects.append(each)
    cards = msgspec.structs.replace(plan.cards, refusals=tuple(refusals))
    return msgspec.structs.replace(plan, cards=cards, objects=tuple(objects))


async def _written(client: Client, each: Write) -> Outcome:
    try:
        if each.before is None:
            await client.create(each.kind.type, {"metadata": {"name": each.name}, "spec": each.spec})
            return Outcome(name=str(each), done=True)
        return await _replaced(client, each, each.before)
    except KubeError as error:
        return Outcome(name=str(each), done=False, sentence=str(error))


async def _replaced(client: Client, each: Write, before: Mapping[str, object]) -> Outcome:
    """The spec alone is replaced, in the version that was planned on or one with the same spec: a status is written
    all the time."""
    body = {"spec": merge_patch(before, each.spec)}
    version = each.resource_version
    for _ in range(_ATTEMPTS):
        try:
            await client.patch(each.kind.type, each.name, body, resource_version=version)
        except Conflict:
            latest = await client.get(each.kind.type, each.name)
            if spec_of(latest) != before:
                break
            version = latest.metadata.resource_version
        else:
            return Outcome(name=str(each), done=True)
    sentence = "it has been changed meanwhile, and nothing was written: look again, and repeat the command"
    return Outcome(name=str(each), done=False, sentence=sentence)
