"""Kubernetes Events about our objects: told once, then counted up as a series instead of repeated.

Telling never waits and never fails a reconcile: Events are written by a task in the background, at most one request
for each kind of happening and object in `interval` seconds, however often it happens.
"""

import asyncio
import enum
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import ClassVar

import msgspec
import structlog

from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import ApiError, KubeError, NotFound
from gpu_control_plane.kube.objects import Key, Object, ObjectMeta, Resource
from gpu_control_plane.kube.times import micro_time, utc_now

_log = structlog.get_logger(component="kube.events")

_NOTE_LIMIT = 1024
_PENDING_LIMIT = 4096


class EventType(enum.StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The object an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str | None = None
    uid: str = ""


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


class _Happening(msgspec.Struct, frozen=True):
    """What makes two Events the same."""

    regarding: ObjectReference
    type: EventType
    reason: str
    action: str
    note: str


class _Series(msgspec.Struct):
    """How often something happened and how much of that the API server knows."""

    first: datetime
    last: datetime
    count: int = 1
    written: int = 0
    tried_at: datetime | None = None
    event: Key | None = None

    @property
    def unwritten(self) -> bool:
        return self.written < self.count


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
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client = client
        self._controller = controller
        self._instance = instance
        self._interval = timedelta(seconds=interval)
        self._memory = timedelta(seconds=memory)
        self._now = now
        self._series: dict[_Happening, _Series] = {}
        self._changed = asyncio.Event()

    def normal(self, about: Object, reason: str, note: str, *, action: str = "Reconcile") -> None:
        """Something went as it should and is worth knowing."""
        self._tell(about, EventType.NORMAL, reason, note, action)

    def warning(self, about: Object, reason: str, note: str, *, action: str = "Reconcile") -> None:
        """Something needs a person's attention."""
        self._tell(about, EventType.WARNING, reason, note, action)

    def _tell(self, about: Object, kind: EventType, reason: str, note: str, action: str) -> None:
        happening = _Happening(_reference(about), kind, reason, action, note[:_NOTE_LIMIT])
        series = self._series.get(happening)
        now = self._now()
        if series is not None:
            series.count += 1
            series.last = now
        elif len(self._series) >= _PENDING_LIMIT:
            self._client.metrics.events_dropped.inc()
            return
        else:
            self._series[happening] = _Series(first=now, last=now)
            if kind is EventType.WARNING:
                # Events expire within hours; the log tells the same, in the same words.
                _log.warning("told", reason=str(reason), about=f"{about.resource.kind}/{about.key}", note=note)
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
            try:
                async with asyncio.timeout(2.0):
                    await self._write_due(all_of_them=True)
            except TimeoutError:
                _log.warning("stopping with Events unwritten", count=len(self._series))

    async def _write_due(self, *, all_of_them: bool = False) -> float | None:
        """Write what is due and forget what is long past; returns the seconds until there is more to do, or None."""
        for happening, series in list(self._series.items()):
            if series.unwritten and (all_of_them or self._due_at(series) <= self._now()):
                await self._write(happening, series)
            elif self._due_at(series) <= self._now():
                del self._series[happening]
        if not self._series:
            return None
        next_due = min(self._due_at(series) for series in self._series.values())
        return max((next_due - self._now()).total_seconds(), 0.01)

    def _due_at(self, series: _Series) -> datetime:
        """When a series must be written, or, with nothing to write, may be forgotten."""
        if not series.unwritten:
            return series.last + self._memory
        return series.tried_at + self._interval if series.tried_at else series.first

    async def _write(self, happening: _Happening, series: _Series) -> None:
        count = series.count
        series.tried_at = self._now()
        try:
            if series.event is None or not await self._count_up(series):
                series.event = (await self._create(happening, series)).key
        except ApiError as error:
            # Refused: no room in the namespace, forbidden, or it is being deleted. Trying again would not help.
            self._client.metrics.events_dropped.inc()
            _log.warning("an Event was refused", reason=happening.reason, note=happening.note, why=str(error))
        except KubeError as error:
            _log.warning("an Event waits for the API server", reason=happening.reason, why=str(error))
            return
        else:
            self._client.metrics.events_written.inc()
        series.written = count

    async def _create(self, happening: _Happening, series: _Series) -> Event:
        regarding = happening.regarding
        namespace = regarding.namespace or "default"
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

    async def _count_up(self, series: _Series) -> bool:
        """Raise the count of the Event written before; False if it has expired."""
        assert series.event is not None  # noqa: S101 - the caller checked
        try:
            await self._client.patch(
                Event,
                series.event.name,
                {"series": msgspec.to_builtins(_series_body(series))},
                namespace=series.event.namespace,
            )
        except NotFound:
            return False
        return True


def _event_prefix(name: str) -> str:
    """Some kinds allow names, such as `system:node`, that an Event may not have."""
    return re.sub(r"[^a-z0-9.-]", "-", name.lower()).strip("-.")[:200] + "-"


def _series_body(series: _Series) -> EventSeries:
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
