"""Events are created once and then counted up, and never hold up the reconcile that records them."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from fault_proxy import Fault, FaultProxy, Request
from gpu_control_plane.kube import Client, EventRecorder, Selection
from gpu_control_plane.kube.event_aggregator import LIMIT
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.metrics import Metrics
from integration.conftest import Namespace
from integration.kinds import ConfigMap, configmap
from waiting import until_async


@asynccontextmanager
async def recording(client: Client, interval: float = 0.2, limit: int = LIMIT) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(client, "test.example/recorder", "instance-1", interval=interval, limit=limit)
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(0)
    try:
        yield recorder
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def events_in(client: Client, namespace: str) -> list[Event]:
    return await client.list(Event, Selection(namespace, fields="reportingController=test.example/recorder"))


async def test_an_event_names_its_object_and_its_reporter(client: Client, namespace: str) -> None:
    about = await client.create(ConfigMap, configmap("one"), namespace)
    async with recording(client) as recorder:
        recorder.warning(about, "TooSmall", "the map has no data", action="Measure")

        async def written() -> bool:
            return bool(await events_in(client, namespace))

        await until_async(written)
    (event,) = await events_in(client, namespace)
    assert event.regarding is not None
    assert (event.regarding.kind, event.regarding.name, event.regarding.uid) == ("ConfigMap", "one", about.metadata.uid)
    assert (event.type, event.reason, event.action) == ("Warning", "TooSmall", "Measure")
    assert event.note == "the map has no data"
    assert event.series is None


async def test_an_event_whose_answer_is_on_its_way_at_the_end_is_not_written_twice(
    client: Client, namespace: str
) -> None:
    about = await client.create(ConfigMap, configmap("one"), namespace)
    arrived, stopping = asyncio.Event(), asyncio.Event()

    async def answer_late(request: Request) -> None:
        if request.is_write:
            arrived.set()
            await stopping.wait()

    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as slow:
        proxy.on_answer = answer_late
        async with recording(slow) as recorder:
            recorder.normal(about, "Once", "it happened")
            await arrived.wait()
            asyncio.get_running_loop().call_soon(stopping.set)  # once the recorder is cancelled, just below
        assert len(proxy.writes) == 1
    assert len(await events_in(client, namespace)) == 1


async def test_a_thousand_repetitions_are_one_event_with_a_count(client: Client, namespace: str) -> None:
    about = await client.create(ConfigMap, configmap("one"), namespace)
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as counted:
        began = time.monotonic()
        async with recording(counted, interval=0.5) as recorder:
            for _ in range(1000):
                recorder.normal(about, "Again", "it happened again")
                await asyncio.sleep(0)

            async def all_counted() -> bool:
                events = await events_in(client, namespace)
                return bool(events and events[0].series and events[0].series.count == 1000)

            await until_async(all_counted)
        assert len(await events_in(client, namespace)) == 1
        # One to begin with, and then no more than one in each interval, however long all of this has taken.
        assert len(proxy.writes) <= 2 + (time.monotonic() - began) // 0.5


async def test_the_newest_event_of_an_object_is_what_happened_last(client: Client, namespace: str) -> None:
    about = await client.create(ConfigMap, configmap("one"), namespace)
    async with recording(client, interval=3600) as recorder:
        for turn in range(3):
            for note in ("broken", "works again"):
                recorder.normal(about, "Changed", note)
                happened = functools.partial(_newest, client, namespace, note, turn + 1)
                await until_async(happened, saying=f"{note}, {turn + 1} times, is the newest")
    assert len(await events_in(client, namespace)) == 2


async def _newest(client: Client, namespace: str, note: str, count: int) -> bool:
    events = await events_in(client, namespace)
    newest = max(events, key=lambda event: event.seen_at, default=None)
    return newest is not None and (newest.note, newest.series.count if newest.series else 1) == (note, count)


async def test_different_notes_are_different_events(client: Client, namespace: str) -> None:
    about = await client.create(ConfigMap, configmap("one"), namespace)
    async with recording(client) as recorder:
        recorder.normal(about, "Seen", "card a")
        recorder.normal(about, "Seen", "card b")
    assert {event.note for event in await events_in(client, namespace)} == {"card a", "card b"}


async def test_an_event_about_a_cluster_scoped_object_is_kept_in_the_default_namespace(
    client: Client, namespace: str
) -> None:
    about = await client.get(Namespace, namespace)
    async with recording(client) as recorder:
        recorder.normal(about, "Seen", "a namespace")
    events = await events_in(client, "default")
    assert {event.note for event in events if event.regarding and event.regarding.name == namespace} == {"a namespace"}


async def test_an_expired_event_is_written_anew(client: Client, namespace: str) -> None:
    about = await client.create(ConfigMap, configmap("one"), namespace)
    async with recording(client, interval=0.05) as recorder:
        recorder.normal(about, "Seen", "first")

        async def written() -> bool:
            return bool(await events_in(client, namespace))

        await until_async(written)
        (event,) = await events_in(client, namespace)
        await client.delete(Event, event.name, namespace)
        recorder.normal(about, "Seen", "first")
        await until_async(written)


async def test_an_event_recorded_while_the_server_is_away_is_written_later(client: Client, namespace: str) -> None:
    about = await client.create(ConfigMap, configmap("one"), namespace)
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config, timeout=0.2) as faulty:
        proxy.plant(Fault(when=lambda request: request.is_write, delay=1.0, status=503, times=2))
        async with recording(faulty, interval=0.05) as recorder:
            recorder.normal(about, "Seen", "patiently")

            async def written() -> bool:
                return bool(await events_in(client, namespace))

            await until_async(written)


async def test_a_server_that_is_too_busy_is_asked_again(client: Client, namespace: str) -> None:
    about = await client.create(ConfigMap, configmap("one"), namespace)
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as faulty:
        proxy.plant(Fault(when=lambda request: request.is_write, status=500, reason="InternalError", times=2))
        async with recording(faulty, interval=0.05) as recorder:
            recorder.normal(about, "Seen", "patiently")

            async def written() -> bool:
                return bool(await events_in(client, namespace))

            await until_async(written)
    assert _dropped(faulty) == {}


async def test_an_event_without_room_is_counted_and_in_the_log(client: Client, namespace: str) -> None:
    about = await client.create(ConfigMap, configmap("one"), namespace)
    counted = Client(client.config, metrics=Metrics())
    async with counted:
        with capture_logs() as log:
            async with recording(counted, limit=2) as recorder:
                for number in range(5):
                    recorder.warning(about, "Seen", f"card {number}")
        assert _dropped(counted) == {"overflow": 3}
        assert [line["note"] for line in log if line["event"] == "Event recorded"] == [
            f"card {number}" for number in range(5)
        ]
        assert {event.note for event in await events_in(client, namespace)} == {"card 0", "card 1"}


def _dropped(client: Client) -> dict[str, float]:
    samples = [sample for metric in client.metrics.events_dropped.collect() for sample in metric.samples]
    return {sample.labels["reason"]: sample.value for sample in samples if sample.name.endswith("_total")}
