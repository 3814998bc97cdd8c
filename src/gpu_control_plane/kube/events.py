"""Kubernetes Events about our objects: created once, then counted up as a series instead of repeated.

Recording an Event never waits and never fails a reconcile: a task in the background writes them, at most one request
for each series in `interval` seconds, however often the Event is recorded; a few more where Events about an object take
turns, so that the newest is the one that happened last. Events that are lost are counted.
"""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import batched
from typing import ClassVar

import msgspec

from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import ApiError, KubeError, NotFound, ServerError, TooManyRequests
from gpu_control_plane.kube.event_aggregator import (
    LIMIT,
    EventAggregator,
    EventKey,
    EventType,
    ObjectReference,
    RecordResult,
    Series,
)
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.logs import get_logger
from gpu_control_plane.kube.objects import Object, ObjectMeta, Resource
from gpu_control_plane.kube.times import micro_time, utc_now

_log = get_logger("kube.events")

_NOTE_LIMIT = 1024
_WRITES_AT_ONCE = 8
_SHUTDOWN_SECONDS = 2.0
"""How long a process that stops goes on writing Events."""


class EventSeries(msgspec.Struct, frozen=True, rename="camel"):
    count: int
    last_observed_time: str


class Event(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("events.k8s.io", "v1", "Event", "events")

    regarding: ObjectReference | None = None
    type: str = ""
    reason: str = ""
    action: str = ""
    note: str = ""
    event_time: str | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    series: EventSeries | None = None
    deprecated_last_timestamp: str | None = None
    """The time of Events in the old form, which Kubernetes' own controllers still write."""

    @property
    def seen_at(self) -> datetime:
        """When it was last seen. Whoever may write Events may write nonsense: that was long ago."""
        text = self.series.last_observed_time if self.series is not None else self.event_time
        text = text or self.deprecated_last_timestamp
        try:
            moment = datetime.fromisoformat(text or "")
        except ValueError:
            return datetime.fromtimestamp(0, UTC)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class EventRecorder:
    """Records Events about objects and writes them to the API server."""

    def __init__(
        self,
        client: Client,
        controller: str,
        instance: str,
        *,
        interval: float = 30.0,
        memory: float = 360.0,
        limit: int = LIMIT,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client = client
        self._controller = controller
        self._instance = instance
        self._now = now
        self._interval = interval
        self._series = EventAggregator(
            interval=timedelta(seconds=interval), memory=timedelta(seconds=memory), limit=limit
        )
        self._postponed = 0
        self._under_way: asyncio.Future[None] | None = None
        self._changed = asyncio.Event()

    def normal(self, about: Object, reason: str, note: str, *, action: str = "Reconcile") -> None:
        """Something went as it should and is worth knowing."""
        self._record(about, EventType.NORMAL, reason, note, action)

    def warning(self, about: Object, reason: str, note: str, *, action: str = "Reconcile") -> None:
        """Something needs a person's attention."""
        self._record(about, EventType.WARNING, reason, note, action)

    def _record(self, about: Object, kind: EventType, reason: str, note: str, action: str) -> None:
        key = EventKey(_reference(about), kind, reason, action, note[:_NOTE_LIMIT])
        result = self._series.record(key, self._now())
        if result is RecordResult.REFUSED or (result is RecordResult.NEW and kind is EventType.WARNING):
            # Events expire within hours, and some find no room; the log says the same, in the same words.
            _log.warning(
                "Event recorded", reason=str(reason), about=f"{about.resource.kind}/{about.key}", note=key.note
            )
        if result is RecordResult.REFUSED:
            self._count_dropped("overflow")
        self._changed.set()

    async def run(self) -> None:
        """Write Events until cancelled, then what is still unwritten, within two seconds."""
        try:
            while True:
                self._changed.clear()
                wait = await self._write_due()
                try:
                    async with asyncio.timeout(wait):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        finally:
            await self._write_the_rest()

    async def _write_due(self) -> float | None:
        """Write what is due and forget what is long past; returns the seconds until there is more to do, or None."""
        while batch := self._series.take_due(self._now(), _WRITES_AT_ONCE):
            before = self._postponed
            self._under_way = asyncio.ensure_future(gather_all(self._write(*due) for due in batch))
            # A cancelled recorder lets them finish: a write that has arrived all the same would be repeated.
            await asyncio.shield(self._under_way)
            if self._postponed > before:
                # The API server is away or busy: the other Events wait, too, instead of each asking it.
                return self._interval
        self._series.forget(self._now())
        moment = self._series.next_due()
        return max((moment - self._now()).total_seconds(), 0.01) if moment is not None else None

    async def _write_the_rest(self) -> None:
        try:
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                if self._under_way is not None:
                    await asyncio.gather(self._under_way, return_exceptions=True)
                for batch in batched(self._series.take_all(), _WRITES_AT_ONCE):
                    await gather_all(self._write(key, series) for key, series in batch)
        except TimeoutError:
            _log.warning("Events left unwritten at the end", count=self._series.unwritten)
        if self._series.unwritten:
            self._count_dropped("stopping", self._series.unwritten)

    async def _write(self, key: EventKey, series: Series) -> None:
        count = series.count
        try:
            if not series.event_name or not await self._count_up(key, series):
                series.event_name = (await self._create(key, series)).name
        except KubeError as error:
            if not isinstance(error, ApiError) or isinstance(error, TooManyRequests | ServerError):
                _log.warning("Event not written, waiting for the API server", reason=key.reason, why=str(error))
                self._postponed += 1
                self._series.postpone(key)
                return
            # Refused: no room in the namespace, forbidden, or it is being deleted. Trying again would not help.
            self._count_dropped("refused")
            _log.warning("Event refused by the API server", reason=key.reason, note=key.note, why=str(error))
        else:
            self._client.metrics.events_written.inc()
        self._series.mark_written(key, count)

    def _count_dropped(self, reason: str, count: int = 1) -> None:
        self._client.metrics.events_dropped.labels(reason).inc(count)

    async def _create(self, key: EventKey, series: Series) -> Event:
        regarding, namespace = key.regarding, _namespace(key)
        event = Event(
            metadata=ObjectMeta(generate_name=_event_prefix(regarding.name), namespace=namespace),
            regarding=regarding,
            type=key.type,
            reason=key.reason,
            action=key.action,
            note=key.note,
            event_time=micro_time(series.first),
            reporting_controller=self._controller,
            reporting_instance=self._instance[:128],
            series=_series_body(series) if series.count > 1 else None,
        )
        return await self._client.create(Event, event, namespace)

    async def _count_up(self, key: EventKey, series: Series) -> bool:
        """Raise the count of the Event written before; False if it has expired."""
        try:
            await self._client.patch(
                Event,
                series.event_name,
                {"series": msgspec.to_builtins(_series_body(series))},
                namespace=_namespace(key),
            )
        except NotFound:
            return False
        return True


def _event_prefix(name: str) -> str:
    """Some kinds allow names, such as `system:node`, that an Event may not have."""
    return re.sub(r"[^a-z0-9.-]", "-", name.lower()).strip("-.")[:200] + "-"


def _namespace(key: EventKey) -> str:
    return key.regarding.namespace or "default"


def _series_body(series: Series) -> EventSeries:
    return EventSeries(count=series.count, last_observed_time=micro_time(series.last))


def _reference(about: Object) -> ObjectReference:
    meta, resource = about.metadata, about.resource
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
    )
