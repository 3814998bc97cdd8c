"""Which Events were recorded, how often, and how much of that the API server has. Plain data, no network, no waiting.

The memory is bounded. To make room for a new Event, the series is dropped that is written and was repeated least
recently: it loses its count, but no Event is lost. A series with something left to write is never dropped.

Who reads the Events of an object takes the newest for its state. So a repetition is written at once where another Event
about the object came in between: a card that is faulted, mended and faulted again must not end with "works again".
"""

import enum
import heapq
from collections import OrderedDict
from datetime import datetime, timedelta

import msgspec

LIMIT = 32_768
"""Series held at a time: six for each of 5,000 nodes, in about as many kilobytes."""
PROMPT_LIMIT = 5
"""Times in a row that a series is written before its interval is over: what changes all the time is written slowly."""


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


class EventKey(msgspec.Struct, frozen=True):
    """Two Events with the same key are one series."""

    regarding: ObjectReference
    type: EventType
    reason: str
    action: str
    note: str


class Series(msgspec.Struct):
    """How often an Event was recorded, and up to which count it is written, in the object of which name."""

    first: datetime
    last: datetime
    count: int = 1
    written: int = 0
    tried_at: datetime | None = None
    event_name: str = ""
    due: datetime | None = None
    """When it is to be written; None while that is under way, and when there is nothing to write."""
    overtaken: bool = False
    """Whether another Event about the object is newer than what the API server has of this one."""
    prompt: int = 0
    """How many times in a row it was written early."""


class RecordResult(enum.Enum):
    NEW = "new"
    REPEATED = "repeated"
    REFUSED = "refused"


class EventAggregator:
    """All series. Each that has something to write is due once: at once when it is new or another Event about the
    object came in between, else `interval` after the last attempt to write it. A written one is forgotten when it was
    not repeated for `memory`."""

    def __init__(self, *, interval: timedelta, memory: timedelta, limit: int = LIMIT) -> None:
        self._interval = interval
        self._memory = memory
        self._limit = limit
        self._open: dict[EventKey, Series] = {}
        self._written: OrderedDict[EventKey, Series] = OrderedDict()
        self._newest: dict[ObjectReference, EventKey] = {}
        """The last Event about each object."""
        self._due: list[tuple[datetime, int, EventKey]] = []
        """In the order of time; an entry whose moment is not that of its series is out of date."""
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._open) + len(self._written)

    @property
    def unwritten(self) -> int:
        return len(self._open)

    def record(self, key: EventKey, now: datetime) -> RecordResult:
        """Count one more occurrence; a new series is refused where no other can be dropped for it."""
        series = self._open.get(key) or self._written.get(key)
        if series is not None:
            self._repeat(key, series, now)
            return RecordResult.REPEATED
        if len(self) >= self._limit:
            if not self._written:
                return RecordResult.REFUSED
            self._drop(next(iter(self._written)))
        self._newest[key.regarding] = key
        self._open[key] = Series(first=now, last=now)
        self._schedule(key, self._open[key], now)
        return RecordResult.NEW

    def _repeat(self, key: EventKey, series: Series, now: datetime) -> None:
        if now >= series.last + self._interval:
            series.prompt = 0
        series.count += 1
        series.last = now
        series.overtaken = series.overtaken or self._newest.get(key.regarding) != key
        self._newest[key.regarding] = key
        under_way = key in self._open and series.due is None
        if not under_way:
            self._written.pop(key, None)
            self._reopen(key, series)

    def take_due(self, now: datetime, most: int) -> list[tuple[EventKey, Series]]:
        """The next to be written, at most so many. Each must come back by `mark_written` or `postpone`."""
        found: list[tuple[EventKey, Series]] = []
        while len(found) < most and (moment := self._next_write()) is not None and moment <= now:
            key = heapq.heappop(self._due)[2]
            series = self._open[key]
            early = series.tried_at is not None and now < series.tried_at + self._interval
            series.prompt += early
            series.tried_at, series.due, series.overtaken = now, None, False
            found.append((key, series))
        return found

    def take_all(self) -> list[tuple[EventKey, Series]]:
        """Everything that is not written, due or not: for the end, when there is no later."""
        self._due.clear()
        return list(self._open.items())

    def mark_written(self, key: EventKey, count: int) -> None:
        """The API server has the series up to this count; what was recorded since is due after the interval."""
        series = self._open.pop(key)
        series.written = count
        if series.written < series.count:
            self._reopen(key, series)
        else:
            self._written[key] = series

    def postpone(self, key: EventKey) -> None:
        """It could not be written; it is due again after the interval."""
        series = self._open[key]
        series.overtaken = False
        self._reopen(key, series)

    def forget(self, now: datetime) -> None:
        """Drop what is written and was not repeated for so long that the next occurrence is a new series."""
        while self._written:
            oldest = next(iter(self._written))
            if self._written[oldest].last + self._memory > now:
                return
            self._drop(oldest)

    def next_due(self) -> datetime | None:
        """When there is something to write or to forget."""
        moments = [moment] if (moment := self._next_write()) is not None else []
        if self._written:
            moments.append(next(iter(self._written.values())).last + self._memory)
        return min(moments, default=None)

    def _next_write(self) -> datetime | None:
        """When the next series is due; drops entries that are out of date."""
        while self._due:
            moment, _, key = self._due[0]
            series = self._open.get(key)
            if series is not None and series.due == moment:
                return moment
            heapq.heappop(self._due)
        return None

    def _drop(self, key: EventKey) -> None:
        del self._written[key]
        if self._newest.get(key.regarding) == key:
            del self._newest[key.regarding]

    def _reopen(self, key: EventKey, series: Series) -> None:
        self._open[key] = series
        if series.overtaken and series.prompt < PROMPT_LIMIT:
            self._schedule(key, series, series.last)
        else:
            self._schedule(key, series, (series.tried_at or series.first) + self._interval)

    def _schedule(self, key: EventKey, series: Series, moment: datetime) -> None:
        if series.due is None or moment < series.due:
            series.due = moment
            self._sequence += 1
            heapq.heappush(self._due, (moment, self._sequence, key))
