"""Gathers hours: from Prometheus where there is one, else from the cluster's own objects."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.kube.client import Client, Selection
from gpu_control_plane.kube.errors import Forbidden
from gpu_control_plane.kube.objects import Object, Resource
from gpu_control_plane.kube.sentences import counted_are
from gpu_control_plane.usage.held_now import PodStart, held_now
from gpu_control_plane.usage.hours import By, UsageRow, add_up
from gpu_control_plane.usage.prometheus import Prometheus
from gpu_control_plane.usage.queries import (
    Answers,
    coverage_question,
    hours_from,
    owner_name,
    owners_from,
    owners_question,
    questions,
    step_for,
)
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.reading import Part, read_fleet

_AT_ONCE: Final = 8
NO_PROMETHEUS: Final = (
    "No Prometheus: these are the pods that hold cards now, since they started.",
    "What pods held that have ended, and how busy cards were, is not known.",
)
"""Notes of every answer that does not come from Prometheus."""


class _PodStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    start_time: datetime | None = None


class StartedPod(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    status: _PodStatus = _PodStatus()


class Usage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer: rows, where they come from, and what they leave out."""

    by: By
    source: str
    since: float
    """Hours that were asked about."""
    covered: float | None
    """Hours of them that the source knows of; None where it is each pod's own time."""
    rows: list[UsageRow]
    notes: list[str]
    complete: bool = True
    """False where something may not be read that the rows are made of; the notes say what."""


def pools_of(cards: Iterable[GPUDevice]) -> dict[str, str]:
    """By the identity of a card, the pool that it is in."""
    return {
        card.status.hardware.uuid: card.status.pool_ref.name
        for card in cards
        if card.status.hardware is not None and card.status.hardware.uuid and card.status.pool_ref is not None
    }


async def usage_from_prometheus(
    prometheus: Prometheus, by: By, since: timedelta, pools: Mapping[str, str] | None = None
) -> Usage:
    """Hours as Prometheus has seen them; `pools` are needed to add up by pool."""
    step = step_for(since)
    asked = questions(by, since, step)
    found = await asyncio.gather(*map(prometheus.ask, asked.values()))
    answers = Answers(**dict(zip(asked, found, strict=True)))
    coverage = await prometheus.ask(coverage_question(since, step))
    covered = min(coverage[0].value if coverage else 0.0, since.total_seconds() / 3600)
    notes: list[str] = []
    name = await _naming(prometheus, by, since, pools or {}, notes)
    rows = await asyncio.to_thread(lambda: add_up(hours_from(answers, by, name)))
    return Usage(
        by=by,
        source=f"Prometheus, {prometheus.where}",
        since=since.total_seconds() / 3600,
        covered=round(covered, 3),
        rows=rows,
        notes=[*_notes(rows, covered, since), *notes],
    )


async def usage_now(client: Client, by: By, since: timedelta, now: datetime) -> Usage:
    """Hours of the pods that hold cards now, since they started."""
    return await usage_of(client, await read_fleet(client, (Part.CARDS,)), by, since, now)


async def usage_of(client: Client, fleet: Fleet, by: By, since: timedelta, now: datetime) -> Usage:
    """The same of a fleet that is known already: only the pods that hold its cards are read."""
    cards = fleet.cards.values()
    pods = await _pods(client, {user.namespace for card in cards for user in card.status.used_by})
    found = await asyncio.to_thread(held_now, cards, pods, by, now=now, since=since)
    notes = [
        *NO_PROMETHEUS,
        f"{counted_are(found.cards, 'card')} held now, {found.idle_cards} of them idle.",
    ]
    notes += [f"Without {each.kind}: {each.why}" for each in fleet.missing]
    if found.unknown:
        notes.append(f"Of {found.unknown} pods it is not known since when they run: they count as 0 hours.")
    return Usage(
        by=by,
        source="the cluster's objects, since the pods started",
        since=since.total_seconds() / 3600,
        covered=None,
        rows=add_up(found.hours),
        notes=notes,
        complete=not fleet.missing and not found.unknown,
    )


async def _pods(client: Client, namespaces: Iterable[str]) -> dict[tuple[str, str], PodStart]:
    """The pods of namespaces that hold cards; of those that may not be read, none."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def of(namespace: str) -> list[StartedPod]:
        async with limit:
            try:
                return await client.list(StartedPod, Selection(namespace))
            except Forbidden:
                return []

    lists = await asyncio.gather(*map(of, sorted(namespaces)))
    return {
        (pod.metadata.namespace or "", pod.name): PodStart(started=pod.status.start_time, owner=_owner(pod))
        for pods in lists
        for pod in pods
    }


def _owner(pod: StartedPod) -> str:
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    namespace = pod.metadata.namespace or ""
    return (
        owner_name(namespace, owner.kind, owner.name) if owner is not None else owner_name(namespace, "Pod", pod.name)
    )


class _Naming(msgspec.Struct, frozen=True):
    """Which group the labels of an answer stand for."""

    by: By
    pools: Mapping[str, str] = {}
    owners: Mapping[tuple[str, str], str] = {}

    def __call__(self, labels: Mapping[str, str]) -> str:
        match self.by:
            case By.POOL:
                return self.pools.get(labels.get("UUID", ""), "")
            case By.MODEL:
                return labels.get("modelName", "")
            case By.NODE:
                return labels.get("Hostname", "")
            case By.OWNER:
                namespace, pod = labels.get("namespace", ""), labels.get("pod", "")
                return self.owners.get((namespace, pod), owner_name(namespace, "Pod", pod))
            case _:
                return labels.get("namespace", "")


async def _naming(
    prometheus: Prometheus, by: By, since: timedelta, pools: Mapping[str, str], notes: list[str]
) -> _Naming:
    if by is By.POOL:
        notes.append("Hours count for the pool that a card is in now.")
    if by is not By.OWNER:
        return _Naming(by, pools=pools)
    owners = owners_from(await prometheus.ask(owners_question(since)))
    if not owners:
        notes.append("Prometheus has no kube_pod_owner (kube-state-metrics): pods stand for themselves.")
    return _Naming(by, owners=owners)


def _notes(rows: list[UsageRow], covered: float, since: timedelta) -> list[str]:
    notes = []
    if covered < since.total_seconds() / 3600 * 0.98:
        notes.append(f"Prometheus knows of {covered:.1f} of these {since.total_seconds() / 3600:.0f} hours only.")
    if (unmeasured := sum(row.unmeasured for row in rows)) > 0.01:  # noqa: PLR2004
        notes.append(f"For {unmeasured:.1f} hours held it was not measured how busy the cards were.")
    return notes
