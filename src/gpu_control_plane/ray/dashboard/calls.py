"""Calls to dashboards in tasks of their own: a reconcile asks, takes the latest answer, and goes on.

A dashboard pushes nothing, so what is to be followed is polled, less often while nothing changes. When an answer
differs from the one before, the key of the object is fired. Those who failed last, or were slow, wait among themselves
for a few places, and no namespace has more than half of the places: however many dashboards hang, or take their time,
those of other namespaces are called at once. Nor do answers of one namespace take all memory.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from gpu_control_plane.kube.errors import KubeError
from gpu_control_plane.kube.logs import get_logger
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.signal import Signal
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.ray.dashboard.errors import BadAnswer, CannotAsk, DashboardError

_log = get_logger("ray.dashboard")

_GROWTH: Final = 1.5
_JITTER: Final = 0.1


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and how many at once."""

    often: float = 2.0
    """The first pause, in seconds, between two calls by which something is followed."""
    slowest: float = 10.0
    """The longest pause, in seconds, between two calls whose answers are the same."""
    first_retry: float = 2.0
    slowest_retry: float = 30.0
    at_once: int = 128
    at_once_for_namespace: int = 64
    slow_at_once: int = 32
    """How many more at once of those whose last call failed or was slow."""
    slow_at_once_for_namespace: int = 16
    slow_after: float = 1.0
    """From so many seconds on a call is slow, however it ends."""
    at_once_for_one: int = 2
    """How many for one object at once."""
    kept_of_namespace: int = 16 << 20
    """Bytes that answers of one namespace may take."""
    kept: int = 256 << 20
    """Bytes that all answers may take."""


class Answer[T](msgspec.Struct, frozen=True, kw_only=True):
    """The latest that a call has given: a value or an error."""

    value: T | None = None
    error: DashboardError | None = None
    at: datetime
    """When it came."""
    since: datetime
    """Since when it is this value, or, for an error, since when no call succeeds: as far as this process knows."""


@runtime_checkable
class Sized(Protocol):
    """An answer that may be large."""

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        ...


class DashboardCalls:
    """The calls of one controller, by the object that they are for and a name. `run` makes them."""

    def __init__(
        self,
        name: str = "dashboards",
        *,
        now: Callable[[], datetime] = utc_now,
        may_call: Callable[[], bool] = lambda: True,
        pace: Pace | None = None,
        rng: random.Random | None = None,
        caller: "_Caller | None" = None,
    ) -> None:
        """`may_call` says whether this process still leads; one that does not makes no calls."""
        self.signal = Signal(name)
        """Fires the key of an object when an answer has come that differs."""
        self._caller = caller or _Caller(now, may_call, pace or Pace(), rng or random.Random())
        self._calls: dict[Key, _CallsOfOne] = {}

    @property
    def often(self) -> float:
        """What `every` is for something that is followed."""
        return self._caller.pace.often

    def for_controller(self, name: str) -> "DashboardCalls":
        """Calls of another controller, whose objects may have the same keys. Both share how many are made at once, and
        the `run` of one makes those of both."""
        return DashboardCalls(name, caller=self._caller)

    def ask[T](
        self, key: Key, name: str, call: Callable[[], Awaitable[T]], *, every: float | None = None
    ) -> Answer[T] | None:
        """The latest answer, None before the first; the call is made in the background.

        With `every` it is repeated for as long as it is not forgotten, first after so many seconds, later more rarely.
        Without, it is made until it succeeds once. What is asked belongs into the name: a cluster, an ID, a hash. A
        call that is asked for again keeps running as it was first given, and takes `call` from its next turn on.
        """
        of_one = self._calls.setdefault(key, _CallsOfOne(self._caller.places_of_one(), {}))
        held = of_one.calls.get(name)
        if held is None:
            held = of_one.calls[name] = _Call(
                key=key, name=name, signal=self.signal, places=of_one.places, every=every, call=call
            )
            self._caller.start(held)
        held.call, held.every = call, every
        return held.answer

    def latest(self, key: Key, name: str) -> Answer[Any] | None:
        """The answer to what has been asked, without asking."""
        held = self._calls.get(key)
        call = held.calls.get(name) if held is not None else None
        return call.answer if call is not None else None

    def keep(self, key: Key, names: Iterable[str]) -> None:
        """Forget all calls for this object but these: what a decision no longer asks for is not repeated."""
        held = self._calls.get(key)
        if held is None:
            return
        for name in held.calls.keys() - set(names):
            self._caller.end(held.calls.pop(name))
        if not held.calls:
            del self._calls[key]

    def forget(self, key: Key, name: str | None = None) -> None:
        """End all calls for an object that is gone, or the one of this name, which may then be asked anew."""
        held = self._calls.get(key)
        if held is not None:
            self.keep(key, () if name is None else held.calls.keys() - {name})

    def forget_all(self) -> None:
        """End all calls: for a process that begins to lead again."""
        for key in list(self._calls):
            self.forget(key)

    def __len__(self) -> int:
        return sum(len(held.calls) for held in self._calls.values())

    async def run(self) -> None:
        """Make the calls, and those of the other controllers, until cancelled; a service for `Runtime.service`."""
        await self._caller.run()


class _Call(msgspec.Struct, eq=False, kw_only=True):
    """One call and its latest answer."""

    key: Key
    name: str
    signal: Signal
    places: asyncio.Semaphore
    every: float | None
    call: Callable[[], Awaitable[Any]]
    answer: Answer[Any] | None = None
    size: int = 0
    """Bytes that the answer takes."""


class _CallsOfOne(msgspec.Struct, frozen=True):
    """The calls for one object."""

    places: asyncio.Semaphore
    calls: dict[str, _Call]


class _Caller:
    """Makes the calls of all controllers: each in a task, and no more at once than there are places."""

    def __init__(
        self, now: Callable[[], datetime], may_call: Callable[[], bool], pace: Pace, rng: random.Random
    ) -> None:
        self._now = now
        self._may_call = may_call
        self.pace = pace
        self._rng = rng
        self._usual = _Places(pace.at_once, pace.at_once_for_namespace)
        self._slow = _Places(pace.slow_at_once, pace.slow_at_once_for_namespace)
        self._kept: Counter[str | None] = Counter()
        """Bytes that answers take, by namespace."""
        self._tasks: dict[_Call, asyncio.Task[None] | None] = {}
        self._group: asyncio.TaskGroup | None = None

    def places_of_one(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.pace.at_once_for_one)

    def start(self, call: _Call) -> None:
        """Make a call from now on, or from when `run` begins."""
        group = self._group
        name = f"{call.signal.name} {call.key} {call.name}"
        self._tasks[call] = group.create_task(self._repeat(call), name=name) if group is not None else None

    def end(self, call: _Call) -> None:
        task = self._tasks.pop(call, None)
        self._keep(call, 0)
        if task is not None:
            task.cancel()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for call in list(self._tasks):
                    self.start(call)
                await asyncio.Event().wait()
        finally:
            self._group = None

    async def _repeat(self, call: _Call) -> None:
        pause, failures, slow = 0.0, 0, False
        clock = asyncio.get_running_loop().time
        while True:
            if self._may_call():
                places = self._slow if failures or slow else self._usual
                async with call.places, places.one(call.key.namespace):
                    began = clock()
                    answer = await self._answer(call)
                    slow = clock() - began >= self.pace.slow_after
                before, call.answer = call.answer, answer
                changed = before is None or (before.value, before.error) != (answer.value, answer.error)
                failures = failures + 1 if answer.error is not None else 0
                if changed:
                    call.signal.fire(call.key)
                if call.every is None and answer.error is None:
                    return
                pause = self._next_pause(call, pause, failures, changed=changed)
            else:
                pause = self.pace.first_retry
            await asyncio.sleep(pause * self._rng.uniform(1 - _JITTER, 1 + _JITTER))

    def _next_pause(self, call: _Call, pause: float, failures: int, *, changed: bool) -> float:
        pace = self.pace
        if failures:
            return min(pace.first_retry * _GROWTH ** min(failures - 1, 30), pace.slowest_retry)
        every = call.every if call.every is not None else pace.first_retry
        return every if changed else min(max(pause * _GROWTH, every), max(pace.slowest, every))

    async def _answer(self, call: _Call) -> Answer[Any]:
        before = call.answer
        value: Any = None
        error: DashboardError | None = None
        try:
            value = await call.call()
            self._keep(call, value.size if isinstance(value, Sized) else 0)
        except DashboardError as raised:
            error = raised
        except KubeError as raised:
            error = CannotAsk(str(raised))
        except Exception as raised:  # noqa: BLE001 - a bug in one call must not end those of other clusters
            _log.warning("a call to a dashboard failed", call=call.name, key=str(call.key), exc_info=raised)
            error = CannotAsk(f"{call.name}: {type(raised).__name__}")
        if error is not None:
            value = None
            self._keep(call, 0)
            # It is kept for long, and what was read when it was raised need not be.
            error.__traceback__ = error.__context__ = error.__cause__ = None
        now = self._now()
        same = before is not None and (before.error is None) == (error is None) and before.value == value
        return Answer(value=value, error=error, at=now, since=before.since if before is not None and same else now)

    def _keep(self, call: _Call, size: int) -> None:
        """Count what an answer takes in place of the one before; `BadAnswer` if that would be too much."""
        namespace, pace = call.key.namespace, self.pace
        more = size - call.size
        if more > 0 and self._kept[namespace] + more > pace.kept_of_namespace:
            raise BadAnswer(
                f"what the dashboards of the namespace {namespace} say takes more than {pace.kept_of_namespace >> 20} "
                "MiB of memory: let them serve fewer applications, or shorter configurations"
            )
        if more > 0 and self._kept.total() + more > pace.kept:
            raise BadAnswer(f"what all dashboards say takes more than {pace.kept >> 20} MiB of memory")
        self._kept[namespace] += more
        call.size = size
        if not self._kept[namespace]:
            del self._kept[namespace]


class _Places:
    """Places for calls. A namespace has some of them at the most, and a free one goes to one that has the fewest."""

    def __init__(self, number: int, of_namespace: int) -> None:
        self._free = number
        self._most = of_namespace
        self._held: Counter[str | None] = Counter()
        self._waiting: dict[str | None, deque[asyncio.Future[None]]] = {}
        """By namespace, that whose turn was last at the end."""

    @asynccontextmanager
    async def one(self, namespace: str | None) -> AsyncIterator[None]:
        """Hold a place for a call of a namespace."""
        await self._take(namespace)
        try:
            yield
        finally:
            self._give_back(namespace)

    async def _take(self, namespace: str | None) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(place)
        self._hand_out()
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._leave(namespace, place)
            else:
                self._give_back(namespace)
            raise

    def _leave(self, namespace: str | None, place: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(namespace, deque())
        if place in waiting:
            waiting.remove(place)
        if not waiting:
            self._waiting.pop(namespace, None)

    def _give_back(self, namespace: str | None) -> None:
        self._free += 1
        self._held[namespace] -= 1
        if not self._held[namespace]:
            del self._held[namespace]
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free:
            able = [each for each in self._waiting if self._held[each] < self._most]
            if not able:
                return
            namespace = min(able, key=self._held.__getitem__)
            waiting = self._waiting.pop(namespace)
            place = waiting.popleft()
            if waiting:
                self._waiting[namespace] = waiting
            if not place.done():
                place.set_result(None)
                self._free -= 1
                self._held[namespace] += 1
