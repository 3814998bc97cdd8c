"""Kubernetes Events about our objects: told once, then counted up as a series instead of repeated.

Telling never waits and never fails a reconcile: Events are written by a task in the background, at most one request
for each kind of happening and object in `interval` seconds, however often it happens. What is lost is counted.
"""

import asyncio
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import batched
from typing import ClassVar

import msgspec
import structlog

from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import ApiError, KubeError, NotFound, ServerError, TooManyRequests
from gpu_control_plane.kube.event_aggregator import (
    LIMIT,
    EventAggregator,
    EventType,
    Happening,
    ObjectReference,
    Series,
    Told,
)
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.objects import Object, ObjectMeta, Resource
from gpu_control_plane.kube.times import micro_time, utc_now

_log = structlog.get_logger(component="kube.events")

_NOTE_LIMIT = 1024
_AT_ONCE = 8
_LAST_WORDS = 2.0


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


class EventRecorder:
    """Tells people, through the API server, what happened to an object."""

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
        self._put_off = 0
        self._under_way: asyncio.Future[None] | None = None
        self._changed = asyncio.Event()

    def normal(self, about: Object, reason: str, note: str, *, action: str = "Reconcile") -> None:
        """Something went as it should and is worth knowing."""
        self._tell(about, EventType.NORMAL, reason, note, action)

    def warning(self, about: Object, reason: str, note: str, *, action: str = "Reconcile") -> None:
        """Something needs a person's attention."""
        self._tell(about, EventType.WARNING, reason, note, action)

    def _tell(self, about: Object, kind: EventType, reason: str, note: str, action: str) -> None:
        happening = Happening(_reference(about), kind, reason, action, note[:_NOTE_LIMIT])
        told = self._series.tell(happening, self._now())
        if told is Told.REFUSED or (told is Told.NEW and kind is EventType.WARNING):
            # Events expire within hours, and some find no room; the log tells the same, in the same words.
            _log.warning("told", reason=str(reason), about=f"{about.resource.kind}/{about.key}", note=note)
        if told is Told.REFUSED:
            self._lose("overflow")
        self._changed.set()

    async def run(self) -> None:
        """Write what was told until cancelled, then what is still unwritten, within two seconds."""
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
        while batch := self._series.take_due(self._now(), _AT_ONCE):
            before = self._put_off
            self._under_way = asyncio.ensure_future(gather_all(self._write(*due) for due in batch))
            # Who is told to stop meanwhile lets them finish: what may have arrived would be written twice.
            await asyncio.shield(self._under_way)
            if self._put_off > before:
                # The server is away or busy: it is not asked once for each Event.
                return self._interval
        self._series.forget(self._now())
        moment = self._series.next_due()
        return max((moment - self._now()).total_seconds(), 0.01) if moment is not None else None

    async def _write_the_rest(self) -> None:
        try:
            async with asyncio.timeout(_LAST_WORDS):
                if self._under_way is not None:
                    await asyncio.gather(self._under_way, return_exceptions=True)
                for batch in batched(self._series.take_all(), _AT_ONCE, strict=False):
                    await gather_all(self._write(happening, series) for happening, series in batch)
        except TimeoutError:
            _log.warning("stopping with Events unwritten", count=self._series.unwritten)
        if self._series.unwritten:
            self._lose("stopping", self._series.unwritten)

    async def _write(self, happening: Happening, series: Series) -> None:
        count = series.count
        try:
            if not series.event or not await self._count_up(happening, series):
                series.event = (await self._create(happening, series)).name
        except KubeError as error:
            if not isinstance(error, ApiError) or isinstance(error, TooManyRequests | ServerError):
                _log.warning("an Event waits for the API server", reason=happening.reason, why=str(error))
                self._put_off += 1
                self._series.put_off(happening)
                return
            # Refused: no room in the namespace, forbidden, or it is being deleted. Trying again would not help.
            self._lose("refused")
            _log.warning("an Event was refused", reason=happening.reason, note=happening.note, why=str(error))
        else:
            self._client.metrics.events_written.inc()
        self._series.wrote(happening, count)

    def _lose(self, reason: str, count: int = 1) -> None:
        self._client.metrics.events_dropped.labels(reason).inc(count)

    async def _create(self, happening: Happening, series: Series) -> Event:
        regarding, namespace = happening.regarding, _namespace(happening)
        event = Event(
            metadata=ObjectMeta(generate_name=_event_prefix(regarding.name), namespace=namespace),
            regarding=regarding,
            type=happening.type,
            reason=happening.reason,
            action=happening.action,
            note=happening.note,
            event_time=micro_time(series.first),
            reporting_controller=self._controller,
            reporting_instance=self._instance[:128],
            series=_series_body(series) if series.count > 1 else None,
        )
        return await self._client.create(Event, event, namespace)

    async def _count_up(self, happening: Happening, series: Series) -> bool:
        """Raise the count of the Event written before; False if it has expired."""
        try:
            await self._client.patch(
                Event,
                series.event,
                {"series": msgspec.to_builtins(_series_body(series))},
                namespace=_namespace(happening),
            )
        except NotFound:
            return False
        return True


def _event_prefix(name: str) -> str:
    """Some kinds allow names, such as `system:node`, that an Event may not have."""
    return re.sub(r"[^a-z0-9.-]", "-", name.lower()).strip("-.")[:200] + "-"


def _namespace(happening: Happening) -> str:
    return happening.regarding.namespace or "default"


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
