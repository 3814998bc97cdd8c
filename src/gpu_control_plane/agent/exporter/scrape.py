"""One pass over the hardware for each scrape, in a thread, shared by all who scrape at the same time."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from gpu_control_plane.agent.backends.interface import Backend, BackendError, Instance, Process
from gpu_control_plane.agent.exporter.exposition import Series, exposition
from gpu_control_plane.agent.exporter.processes import Owner, containers_by_id, owner_in
from gpu_control_plane.agent.exporter.series import CardReadings, Subject, series, shared
from gpu_control_plane.agent.exporter.xids import Reports, XidLog
from gpu_control_plane.api.gpudevice import User

type Users = Mapping[str, Sequence[User]]
"""Who holds what, by the address of a card or the UUID of a MIG instance."""


def owner_on_this_node() -> Owner:
    """Looks processes up among the containers that the kubelet knows now."""
    return owner_in(containers_by_id())


class Hardware(Protocol):
    """Lets a function read from the backend without disturbing the event loop."""

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
        self._subjects: tuple[Subject, ...] = ()
        self._uuids: dict[str, str] = {}
        self._pass: asyncio.Task[bytes] | None = None

    def describe(self, subjects: Iterable[Subject]) -> None:
        """The cards and instances there are; said anew when the inventory or a card's layout has changed."""
        self._subjects = tuple(subjects)
        for card in self._subjects:
            if card.uuid is not None and self._uuids.setdefault(card.address, card.uuid) != card.uuid:
                self._xids.forget(card.address)
                self._uuids[card.address] = card.uuid

    async def exposition(self) -> bytes:
        """What the cards measure now. Who asks while a pass is under way gets what it finds."""
        if self._pass is None or self._pass.done():
            facts = (self._subjects, self._users(), self._xids.reports())
            self._pass = asyncio.create_task(self._hardware.read(self._once, *facts))
            self._pass.add_done_callback(_noticed)
        return await asyncio.shield(self._pass)

    def _once(
        self, backend: Backend, subjects: Sequence[Subject], users: Users, reports: Mapping[str, Reports]
    ) -> bytes:
        told_apart = [shared(card, users) for card in subjects]
        owner = self._owner() if any(told_apart) else _nobody
        found: list[Series] = []
        for card, apart in zip(subjects, told_apart, strict=True):
            found += series(card, _read(backend, card, processes=apart), users, reports.get(card.address), owner)
        return exposition(found)


def _read(backend: Backend, card: Subject, *, processes: bool) -> CardReadings:
    return CardReadings(
        samples=_samples(backend, card.address),
        instances={instance.uuid: _samples(backend, card.address, instance) for instance in card.instances},
        processes=_processes(backend, card.address) if processes else None,
    )


def _samples(backend: Backend, address: str, instance: Instance | None = None) -> Mapping[str, float]:
    """Nothing from a card that does not answer: the other cards are told all the same, and its health says why."""
    try:
        return backend.samples(address, instance)
    except BackendError:
        return {}


def _processes(backend: Backend, address: str) -> Sequence[Process] | None:
    try:
        return backend.processes(address)
    except BackendError:
        return None


def _nobody(_pid: int) -> None:
    return None


def _noticed(task: asyncio.Task[bytes]) -> None:
    """Everybody may have gone before the pass ended: its failure is then nobody's, and no warning either."""
    if not task.cancelled():
        task.exception()
