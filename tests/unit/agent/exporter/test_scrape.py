"""One pass for all who scrape at once, off the event loop, and one bad card that hides no other."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest

from gpu_control_plane.agent.backends.interface import Backend, CardLost, Instance, Process
from gpu_control_plane.agent.backends.measures import Measure
from gpu_control_plane.agent.exporter.catalogue import XID_COUNT
from gpu_control_plane.agent.exporter.processes import ContainerName, Owner
from gpu_control_plane.agent.exporter.scrape import Exporter
from gpu_control_plane.agent.exporter.xids import XidLog
from gpu_control_plane.api.gpudevice import User
from unit.agent.exporter.readings import card, instance, read, user

FIRST, SECOND = "0000:3a:00.0", "0000:3b:00.0"


class FakeBackend:
    """A backend whose readings wait until they are let through."""

    def __init__(self) -> None:
        self.lost: set[str] = set()
        self.passes = 0
        self.threads: set[int] = set()
        self.open = threading.Event()
        self.open.set()
        self.asked_processes: list[str] = []
        self.broken = False

    def samples(self, address: str, instance: Instance | None = None) -> Mapping[str, float]:
        if address == FIRST and instance is None:
            self.passes += 1
        self.threads.add(threading.get_ident())
        self.open.wait(30)
        if self.broken:
            raise RuntimeError("a bug")
        if address in self.lost:
            raise CardLost(f"{address} is gone")
        return {Measure.FB_USED: instance.gpu_instance if instance else 40.0}

    def processes(self, address: str) -> tuple[Process, ...]:
        self.asked_processes.append(address)
        if address in self.lost:
            raise CardLost(f"{address} is gone")
        return (Process(pid=7, memory_mib=12),)


class InAThread:
    """Reads from the cards as the agent does."""

    def __init__(self, cards: FakeBackend) -> None:
        self._backend: Backend = cards  # type: ignore[assignment] # the calls that are not made are left out

    async def read[*A, R](self, function: Callable[[Backend, *A], R], *arguments: *A) -> R:
        return await asyncio.to_thread(function, self._backend, *arguments)


def exporter(
    cards: FakeBackend, users: Mapping[str, Sequence[User]] | None = None, xids: XidLog | None = None
) -> Exporter:
    def owner() -> Owner:
        return lambda pid: ContainerName("team-a", "first", "main") if pid == 7 else None

    made = Exporter(InAThread(cards), xids or XidLog(), lambda: users or {}, owner=owner)
    made.describe((card(0), card(1)))
    return made


async def test_a_scrape_reads_the_cards_in_another_thread() -> None:
    cards = FakeBackend()
    found = read(await exporter(cards).exposition())
    assert [labels["UUID"] for labels, _ in found[Measure.FB_USED]] == ["GPU-0", "GPU-1"]
    assert threading.get_ident() not in cards.threads


async def test_scrapes_at_the_same_time_share_a_pass_and_a_later_one_has_its_own() -> None:
    cards = FakeBackend()
    cards.open.clear()
    made = exporter(cards)
    scrapes = [asyncio.create_task(made.exposition()) for _ in range(5)]
    await asyncio.sleep(0)
    cards.open.set()
    bodies = await asyncio.gather(*scrapes)
    assert (len(set(bodies)), cards.passes) == (1, 1)
    await made.exposition()
    assert cards.passes == 2


async def test_a_scraper_that_hangs_up_takes_nothing_from_the_others() -> None:
    cards = FakeBackend()
    cards.open.clear()
    made = exporter(cards)
    first, second = (asyncio.create_task(made.exposition()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    cards.open.set()
    assert Measure.FB_USED in read(await second)


async def test_a_lost_card_hides_no_other() -> None:
    cards, xids = FakeBackend(), XidLog()
    cards.lost.add(FIRST)
    xids.observe(FIRST, (79,))
    found = read(await exporter(cards, xids=xids).exposition())
    assert [labels["UUID"] for labels, _ in found[Measure.FB_USED]] == ["GPU-1"]
    assert [(labels["UUID"], value) for labels, value in found[Measure.XID_ERRORS]] == [("GPU-0", 79)]


async def test_a_failure_reaches_the_scraper_and_the_next_scrape_starts_anew() -> None:
    cards = FakeBackend()
    cards.broken = True
    made = exporter(cards)
    with pytest.raises(RuntimeError, match="a bug"):
        await made.exposition()
    cards.broken = False
    assert Measure.FB_USED in read(await made.exposition())


async def test_processes_are_asked_for_only_where_pods_share() -> None:
    cards = FakeBackend()
    users = {FIRST: (user("first"), user("second")), SECOND: (user("third"),)}
    found = read(await exporter(cards, users).exposition())
    assert cards.asked_processes == [FIRST]
    use = {labels["pod"]: value for labels, value in found[Measure.FB_USED]}
    assert use == {"first": 12.0, "second": 0.0, "third": 40.0}


async def test_processes_that_cannot_be_read_are_no_zeros() -> None:
    cards = FakeBackend()
    cards.lost.add(FIRST)
    found = read(await exporter(cards, {FIRST: (user("first"), user("second"))}).exposition())
    assert [labels["UUID"] for labels, _ in found[Measure.FB_USED]] == ["GPU-1"]


async def test_instances_of_a_cut_card_are_read_one_by_one() -> None:
    cards = FakeBackend()
    made = exporter(cards)
    made.describe((card(0, instances=(instance(3), instance(5))),))
    found = read(await made.exposition())
    assert [(labels.get("GPU_I_ID"), value) for labels, value in found[Measure.FB_USED]] == [
        (None, 40.0),
        ("3", 3.0),
        ("5", 5.0),
    ]


async def test_a_card_that_is_gone_has_no_series() -> None:
    made = exporter(FakeBackend())
    made.describe((card(1),))
    found = read(await made.exposition())
    assert [labels["UUID"] for labels, _ in found[Measure.FB_USED]] == ["GPU-1"]


async def test_another_card_in_the_same_place_has_no_error_reports_of_the_old_one() -> None:
    xids = XidLog()
    made = exporter(FakeBackend(), xids=xids)
    xids.observe(FIRST, (79,))
    assert XID_COUNT in read(await made.exposition())
    made.describe((card(1),))
    new = card(0)
    made.describe((msgspec.structs.replace(new, uuid="GPU-new", labels=new.labels.replace("GPU-0", "GPU-new")),))
    assert XID_COUNT not in read(await made.exposition())
    xids.observe(FIRST, (48,))
    ((labels, count),) = read(await made.exposition())[XID_COUNT]
    assert (labels["UUID"], labels["xid"], count) == ("GPU-new", "48", 1)
