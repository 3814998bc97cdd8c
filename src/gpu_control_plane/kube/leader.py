"""One leader among replicas, by a Lease, with a clean hand-over and a fence for a process that has missed its end.

A candidate does not poll: it watches the Lease and tries when it is released or when it has not been renewed for its
whole duration, by the candidate's own clock. A leader stops before others may take over, and `check`, called before
every write, refuses in a process that was frozen and has woken up too late.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import ClassVar

import msgspec
import structlog

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import Client, Selection
from gpu_control_plane.kube.errors import AlreadyExists, Conflict, KubeError, LeadershipLost, NotFound
from gpu_control_plane.kube.events import EventRecorder
from gpu_control_plane.kube.objects import Object, ObjectMeta, Resource
from gpu_control_plane.kube.process_events import ProcessEvent, absence
from gpu_control_plane.kube.times import micro_time, utc_now
from gpu_control_plane.kube.watch import ApiSource

_STOP_SECONDS = 60.0
"""After the end of leadership, all work has ended by then: what has begun is cancelled after 20 s."""

_log = structlog.get_logger(component="kube.leader")


class Timing(msgspec.Struct, frozen=True):
    """Seconds. A leader that could not renew for `deadline` stops; others may take over after `duration`."""

    duration: float = 15.0
    deadline: float = 10.0
    renewal: float = 4.0
    retry: float = 1.0


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int = 0
    renew_time: str | None = None
    """As it is written: Kubernetes accepts years that Python has no datetime for."""


class Lease(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("coordination.k8s.io", "v1", "Lease", "leases")

    spec: LeaseSpec = LeaseSpec()


def boot_time() -> float:
    """Seconds on a clock that goes on while the process is stopped or the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Leadership:
    """This process's part in the election for one lease."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        timing: Timing | None = None,
        clock: Callable[[], float] = boot_time,
        now: Callable[[], datetime] = utc_now,
        events: EventRecorder | None = None,
    ) -> None:
        self._client = client
        self._events = events
        self._refused_since: float | None = None
        self._told_refusal = False
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._timing = timing or Timing()
        self._clock = clock
        self._now = now
        self._valid_until = 0.0
        self._held_until = 0.0
        self._leads = False
        self._held: Lease | None = None

    @property
    def lease(self) -> Lease:
        """The Lease, to write Events about."""
        return self._held or Lease(metadata=ObjectMeta(name=self._name, namespace=self._namespace))

    @property
    def leading(self) -> bool:
        return self._clock() < self._valid_until

    def check(self) -> None:
        """Raise `LeadershipLost` unless this process certainly holds the lease."""
        if not self.leading:
            raise LeadershipLost(f"this process no longer holds the lease {self._namespace}/{self._name}")

    def problem(self) -> str | None:
        """Why this process will never lead again, for a liveness check: its work goes on long after its lease ended."""
        late = self._clock() - self._held_until
        if not self._leads or late < _STOP_SECONDS:
            return None
        return f"the lease {self._namespace}/{self._name} ran out {late:.0f} s ago, and what it allowed has not ended"

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Campaign, run `lead` while leading, and campaign again when leadership is lost. Ends when `lead` ends."""
        gauge = self._client.metrics.leading.labels(self._name)
        while True:
            await self._win()
            gauge.set(1)
            _log.info("leading", lease=self._name, identity=self._identity)
            try:
                await self._lead(lead)
            except* LeadershipLost as lost:
                _log.warning("leadership lost", lease=self._name, why=str(_first(lost)))
            else:
                return
            finally:
                gauge.set(0)

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        self._leads = True
        try:
            async with asyncio.TaskGroup() as group:
                renewal = group.create_task(self._keep_renewing())
                await lead()
                renewal.cancel()
        finally:
            self._leads = False
            await asyncio.shield(self._release())

    async def _win(self) -> None:
        """Campaign. When cancelled in the moment of winning, release the Lease, so that others need not wait."""
        try:
            await self._campaign()
        except asyncio.CancelledError:
            await asyncio.shield(self._release())
            raise

    async def _campaign(self) -> None:
        """Return once this process holds the Lease."""
        selection = Selection(self._namespace, fields=f"metadata.name={self._name}")
        lease = Cache(Lease, ApiSource(self._client, Lease, selection), metrics=self._client.metrics)
        seen = asyncio.Event()
        observed_at = self._clock()

        def on_change(_old: Lease | None, _new: Lease | None) -> None:
            nonlocal observed_at
            observed_at = self._clock()
            seen.set()

        lease.on_change(on_change)
        watching = asyncio.create_task(lease.run())
        try:
            await lease.synced()
            while True:
                seen.clear()
                held = lease.get(self._name, self._namespace)
                wait = 0.0 if held is None or self._free(held) else observed_at + _duration(held) - self._clock()
                if wait > 0:
                    await _wait_at_most(seen, wait)
                elif await self.acquire(held):
                    return
                else:
                    await _wait_at_most(seen, self._timing.retry)
        finally:
            watching.cancel()
            await asyncio.wait((watching,))

    def _free(self, held: Lease) -> bool:
        return held.spec.holder_identity in {None, "", self._identity}

    async def acquire(self, held: Lease | None) -> bool:
        """Try to become the holder; False when another process was first or the API server did not answer."""
        asked_at = self._clock()
        stamp = micro_time(self._now())
        spec: dict[str, object] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._timing.duration),
            "acquireTime": stamp,
            "renewTime": stamp,
            "leaseTransitions": held.spec.lease_transitions + 1 if held else 0,
        }
        try:
            async with asyncio.timeout(self._timing.deadline):
                if held is None:
                    body = {"metadata": {"name": self._name}, "spec": spec}
                    self._held = await self._client.create(Lease, body, self._namespace)
                else:
                    self._held = await self._write(held, spec)
        except (AlreadyExists, Conflict):
            return False
        except (KubeError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            _log.warning("cannot take the lease", lease=self._name, why=why)
            self._record_refusal(held, why)
            return False
        self._valid_until = self._held_until = asked_at + self._timing.deadline
        self._refused_since, self._told_refusal = None, False
        self._record_absence(held)
        return True

    def _record_refusal(self, held: Lease | None, why: str) -> None:
        """Once, when it has lasted for as long as a leader may go without renewing."""
        if self._refused_since is None:
            self._refused_since = self._clock()
        lasts = self._clock() - self._refused_since >= self._timing.deadline
        if self._events is None or self._told_refusal or not lasts:
            return
        self._told_refusal = True
        note = f"{self._identity} cannot take the lease, so it does not lead: {why}"
        self._events.warning(held or self.lease, ProcessEvent.LEASE_NOT_TAKEN, note, action="Elect")

    def _record_absence(self, held: Lease | None) -> None:
        away = absence(held.spec.renew_time, self._now()) if held is not None else None
        if self._events is None or held is None or away is None:
            return
        note = f"Nobody led for {away.total_seconds() / 60:.0f} minutes; {self._identity} leads now."
        self._events.warning(held, ProcessEvent.LEADER_ABSENT, note, action="Elect")

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(self._timing.renewal)
            while not await self._renew():
                self.check()
                await asyncio.sleep(self._timing.retry)

    async def _renew(self) -> bool:
        """Renew once; False if it should be tried again. A renewal counts from when it was asked for."""
        assert self._held is not None  # noqa: S101 - only a leader renews
        asked_at = self._clock()
        try:
            async with asyncio.timeout(max(self._valid_until - asked_at, 0.01)):
                try:
                    self._held = await self._write(self._held, {"renewTime": micro_time(self._now())})
                except Conflict:
                    self._held = await self._client.get(Lease, self._name, self._namespace)
                    if self._held.spec.holder_identity != self._identity:
                        raise LeadershipLost(f"{self._held.spec.holder_identity} took the lease") from None
                    return False
        except NotFound as error:
            raise LeadershipLost("the lease was deleted") from error
        except LeadershipLost:
            self._valid_until = 0.0
            raise
        except (KubeError, TimeoutError) as error:
            _log.warning("cannot renew the lease", lease=self._name, why=str(error) or "no answer in time")
            return False
        self._valid_until = self._held_until = asked_at + self._timing.deadline
        return True

    async def _release(self) -> None:
        """Release the Lease if this process still holds it, so that the next leader need not wait until it expires."""
        left = self._valid_until - self._clock()
        self._valid_until = 0.0
        if left <= 0 or self._held is None:
            return
        spec: dict[str, object] = {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            async with asyncio.timeout(left):
                try:
                    await self._write(self._held, spec)
                except Conflict:
                    # A renewal that was cut short may have landed all the same.
                    held = await self._client.get(Lease, self._name, self._namespace)
                    if held.spec.holder_identity == self._identity:
                        await self._write(held, spec)
        except (KubeError, TimeoutError) as error:
            _log.info("Lease not released, it expires by itself", lease=self._name, why=str(error))

    async def _write(self, held: Lease, spec: dict[str, object]) -> Lease:
        return await self._client.patch(
            Lease,
            self._name,
            {"spec": spec},
            resource_version=held.metadata.resource_version,
            namespace=self._namespace,
        )


def _first(error: BaseException) -> BaseException:
    """One of the errors that groups hold, however deep."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _duration(held: Lease) -> float:
    return float(held.spec.lease_duration_seconds or 0)


async def _wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, but no longer than `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
