"""Reads the cards for each scrape, in a thread; scrapes at the same time share one reading."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from gpu_control_plane.agent.backends.interface import Backend, BackendError, Instance, Process
from gpu_control_plane.agent.exporter.exposition import Series, exposition
from gpu_control_plane.agent.exporter.processes import Owner, containers_by_id, owner_in
from gpu_control_plane.agent.exporter.series import CardReadings, LabelledCard, series, shared
from gpu_control_plane.agent.exporter.xids import Reports, XidLog
from gpu_control_plane.api.gpudevice import User

type Users = Mapping[str, Sequence[User]]
"""The containers that hold a card, by its address, or a MIG instance, by its UUID."""


def owner_on_this_node() -> Owner:
    """Finds the containers of processes among those that the kubelet has now."""
    return owner_in(containers_by_id())


class Hardware(Protocol):
    """Calls a function with the backend, in a thread."""

    async def read[*A, R](self, function: Callable[[Backend, *A], R], *arguments: *A) -> R: ...


class Exporter:
    """Answers scrapes about the cards of a node."""

    def __init__(
        self,
        hardware: Hardware,
        xids: XidLog,
        users: Callable[[], Users],
        *,
        owner: Callable[[], Owner] = owner_on_this_node,
    ) -> None:
        self._hardware = hardware
        self._xids = xids
        self._users = users
        self._owner = owner
        self._cards: tuple[LabelledCard, ...] = ()
        self._uuids: dict[str, str] = {}
        self._reading: asyncio.Task[bytes] | None = None

    def describe(self, cards: Iterable[LabelledCard]) -> None:
        """The cards and instances of the node, whenever they have changed."""
        self._cards = tuple(cards)
        for card in self._cards:
            if card.uuid is not None and self._uuids.setdefault(card.address, card.uuid) != card.uuid:
                self._xids.forget(card.address)
                self._uuids[card.address] = card.uuid

    async def exposition(self) -> bytes:
        """What the cards measure now. Callers during a reading share its result."""
        if self._reading is None or self._reading.done():
            facts = (self._cards, self._users(), self._xids.reports())
            self._reading = asyncio.create_task(self._hardware.read(self._once, *facts))
            self._reading.add_done_callback(_retrieve_exception)
        return await asyncio.shield(self._reading)

    def _once(
        self, backend: Backend, cards: Sequence[LabelledCard], users: Users, reports: Mapping[str, Reports]
    ) -> bytes:
        by_process = [shared(card, users) for card in cards]
        owner = self._owner() if any(by_process) else _unknown_owner
        found: list[Series] = []
        for card, needed in zip(cards, by_process, strict=True):
            found += series(card, _read(backend, card, processes=needed), users, reports.get(card.address), owner)
        return exposition(found)


def _read(backend: Backend, card: LabelledCard, *, processes: bool) -> CardReadings:
    return CardReadings(
        samples=_samples(backend, card.address),
        instances={instance.uuid: _samples(backend, card.address, instance) for instance in card.instances},
        processes=_processes(backend, card.address) if processes else None,
    )


def _samples(backend: Backend, address: str, instance: Instance | None = None) -> Mapping[str, float]:
    """None of a card that does not answer: the other cards are served, and its health says why."""
    try:
        return backend.samples(address, instance)
    except BackendError:
        return {}


def _processes(backend: Backend, address: str) -> Sequence[Process] | None:
    try:
        return backend.processes(address)
    except BackendError:
        return None


def _unknown_owner(_pid: int) -> None:
    return None


def _retrieve_exception(task: asyncio.Task[bytes]) -> None:
    """All callers may have been cancelled before the reading failed: asyncio must not warn about its exception."""
    if not task.cancelled():
        task.exception()
