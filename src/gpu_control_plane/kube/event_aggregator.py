"""What was told, how often, and how much of that the API server knows. Plain data, no network, no waiting.

The memory is bounded. For something new it first gives up what is written and was not repeated for longest: that costs
a series its count, but nobody a word. Only what is not written yet stays at all events.
"""

import enum
import heapq
from collections import OrderedDict
from datetime import datetime, timedelta

import msgspec

LIMIT = 32_768
"""Happenings held at a time: six for each of 5,000 nodes, in about as many kilobytes."""


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


class Happening(msgspec.Struct, frozen=True):
    """What makes two Events the same."""

    regarding: ObjectReference
    type: EventType
    reason: str
    action: str
    note: str


class Series(msgspec.Struct):
    """How often something happened and how much of that is written, under which name."""

    first: datetime
    last: datetime
    count: int = 1
    written: int = 0
    tried_at: datetime | None = None
    event: str = ""


class Told(enum.Enum):
    NEW = "new"
    AGAIN = "again"
    REFUSED = "refused"


class EventAggregator:
    """All series. Each that has something to write is due once: at once when it is new, else an interval after the last
    attempt to write it."""

    def __init__(self, *, interval: timedelta, memory: timedelta, limit: int = LIMIT) -> None:
        self._interval = interval
        self._memory = memory
        self._limit = limit
        self._open: dict[Happening, Series] = {}
        self._written: OrderedDict[Happening, Series] = OrderedDict()
        self._due: list[tuple[datetime, int, Happening]] = []
        self._turn = 0

    def __len__(self) -> int:
        return len(self._open) + len(self._written)

    @property
    def unwritten(self) -> int:
        return len(self._open)

    def tell(self, happening: Happening, now: datetime) -> Told:
        """Note that something happened; refused where nothing can be given up for it."""
        series = self._open.get(happening)
        if series is None and (series := self._written.pop(happening, None)) is not None:
            self._reopen(happening, series)
        if series is not None:
            series.count += 1
            series.last = now
            return Told.AGAIN
        if len(self) >= self._limit:
            if not self._written:
                return Told.REFUSED
            self._written.popitem(last=False)
        self._open[happening] = Series(first=now, last=now)
        self._schedule(happening, now)
        return Told.NEW

    def take_due(self, now: datetime, most: int) -> list[tuple[Happening, Series]]:
        """The next to be written, at most so many. Each must come back by `wrote` or `put_off`."""
        found: list[tuple[Happening, Series]] = []
        while self._due and len(found) < most and self._due[0][0] <= now:
            happening = heapq.heappop(self._due)[2]
            series = self._open[happening]
            series.tried_at = now
            found.append((happening, series))
        return found

    def take_all(self) -> list[tuple[Happening, Series]]:
        """Everything that is not written, due or not: for the end, when there is no later."""
        self._due.clear()
        return list(self._open.items())

    def wrote(self, happening: Happening, count: int) -> None:
        """So many times are written; what was told since is due after the interval."""
        series = self._open.pop(happening)
        series.written = count
        if series.written < series.count:
            self._reopen(happening, series)
        else:
            self._written[happening] = series

    def put_off(self, happening: Happening) -> None:
        """It could not be written; it is due again after the interval."""
        self._reopen(happening, self._open[happening])

    def forget(self, now: datetime) -> None:
        """Give up what is written and was not repeated for so long that it would be a new story."""
        while self._written:
            oldest = next(iter(self._written))
            if self._written[oldest].last + self._memory > now:
                return
            del self._written[oldest]

    def next_due(self) -> datetime | None:
        """When there is something to write or to forget."""
        moments = [self._due[0][0]] if self._due else []
        if self._written:
            moments.append(next(iter(self._written.values())).last + self._memory)
        return min(moments, default=None)

    def _reopen(self, happening: Happening, series: Series) -> None:
        self._open[happening] = series
        self._schedule(happening, (series.tried_at or series.first) + self._interval)

    def _schedule(self, happening: Happening, moment: datetime) -> None:
        self._turn += 1
        heapq.heappush(self._due, (moment, self._turn, happening))
