"""Whether another operator is active: two operators would undo each other's work for ever.

Such an operator holds one Lease, in the namespace it runs in. It does not release the Lease when it ends, so a Lease
that has run out means either that the operator was removed or that it crashed and is being restarted. In the first case
this operator can wait; in the second, what it would change meanwhile cannot be undone. So the holder counts as active
for ten minutes more. That is longer than a node takes to be declared dead and its pods to be replaced, and longer than
clocks differ. A person who has removed the other operator on purpose deletes the Lease, as `kubectl gpu migrate
take-over` does, and has to wait for nothing.

Whoever may edit a namespace may write such a Lease there, with any time in it. So a Lease counts only in namespaces
that no user has, and for as long as renewals of it are seen by our own clock. Its own time counts only when it is seen
for the first time; one that lies in the future, or that no calendar has, belongs to no living process.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.objects import Key, Object, Resource
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.signal import Signal
from gpu_control_plane.kube.times import utc_now

GRACE_PERIOD: Final = timedelta(minutes=10)
"""How long the holder of a Lease that has run out still counts as active."""
MAX_CLOCK_SKEW: Final = timedelta(minutes=5)
"""How far the clock of a holder may be ahead of ours."""
MAX_DURATION: Final = timedelta(hours=1)
"""The longest that a Lease lasts without a renewal, whatever it says; operators' last a minute at most."""


class LeaseTimes(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Times are kept as they are written: Kubernetes accepts years that Python has no datetime for."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class TimedLease(Object, frozen=True):
    """A Lease with its times. A candidate for leadership must not trust another machine's clock; an observer who sees
    a Lease for the first time has no other."""

    resource: ClassVar[Resource] = Resource("coordination.k8s.io", "v1", "Lease", "leases")

    spec: LeaseTimes = LeaseTimes()

    @property
    def holder(self) -> str:
        return self.spec.holder_identity or ""

    @property
    def renewed(self) -> datetime | None:
        """When it was last renewed, by its holder's clock; None for one that was never held, and for a time that does
        not exist."""
        written = self.spec.renew_time or self.spec.acquire_time
        return _parse(written) if written else self.metadata.creation_timestamp

    @property
    def duration(self) -> timedelta:
        """How long it lasts without a renewal."""
        return min(timedelta(seconds=max(self.spec.lease_duration_seconds or 0, 0)), MAX_DURATION)


class LeaseHolder(msgspec.Struct, frozen=True):
    """The active replica of an operator. `until` is when it stops to count as active unless it renews its Lease."""

    namespace: str
    holder: str
    until: datetime

    def same_holder(self, other: "LeaseHolder | None") -> bool:
        """Whether it is the same replica, however often it has renewed its Lease meanwhile."""
        return other is not None and (self.namespace, self.holder) == (other.namespace, other.holder)


class ObservedLease(msgspec.Struct, frozen=True):
    """A Lease, and when it was last renewed by our own clock; None if that cannot have been."""

    lease: TimedLease
    renewed: datetime | None

    @property
    def ends(self) -> datetime | None:
        """When it runs out unless it is renewed."""
        return self.renewed + self.lease.duration if self.renewed is not None else None

    @property
    def until(self) -> datetime | None:
        """When its holder stops to count as active unless it is renewed."""
        return self.ends + GRACE_PERIOD if self.ends is not None and self.lease.holder else self.ends


def observe(lease: TimedLease, now: datetime, before: ObservedLease | None = None) -> ObservedLease:
    """What a look at a Lease says, after what an earlier look at it said: a time that has moved on is a renewal now."""
    if before is not None and lease.spec == before.lease.spec:
        return ObservedLease(lease, before.renewed)
    renewed, known = lease.renewed, before.lease.renewed if before is not None else None
    if renewed is None or renewed > now + MAX_CLOCK_SKEW:
        return ObservedLease(lease, None)
    return ObservedLease(lease, now if known is not None and renewed > known else min(renewed, now))


def active_holder(leases: Iterable[ObservedLease], now: datetime) -> LeaseHolder | None:
    """The active replica of the operator, by its Leases; of several the one that lasts longest."""
    holders = [
        LeaseHolder(seen.lease.metadata.namespace or "", seen.lease.holder, seen.until)
        for seen in leases
        if seen.until is not None and seen.until > now
    ]
    return max(holders, key=lambda holder: (holder.until, holder.namespace), default=None)


def lease_selection(lease: str, namespace: str | None = None) -> Selection:
    """The Leases of this name, in whatever namespaces unless one is named."""
    return Selection(namespace, fields=f"metadata.name={lease}")


class LeaseReader:
    """Reads the Leases of another operator, by their name, in the namespaces that `trusted` accepts.

    `active` is right on every replica at any moment once the Leases are `synced`.
    """

    def __init__(
        self,
        runtime: Runtime,
        lease: str,
        trusted: Callable[[str | None], bool],
        *,
        now: Callable[[], datetime] = utc_now,
        namespace: str | None = None,
    ) -> None:
        """`lease` is the name of the Leases. With a `namespace` no other is looked at."""
        self._trusted = trusted
        self._now = now
        self._observed: dict[Key, ObservedLease] = {}
        self._leases = runtime.cache(TimedLease, lease_selection(lease, namespace))
        self._leases.on_change(self._observe)

    def active(self) -> LeaseHolder | None:
        """The active replica of the other operator, if there is one."""
        believed = (seen for seen in self._observed.values() if self._trusted(seen.lease.metadata.namespace))
        return active_holder(believed, self._now())

    async def synced(self) -> None:
        """Wait until the Leases have been read."""
        await self._leases.synced()

    def _observe(self, old: TimedLease | None, new: TimedLease | None) -> None:
        if new is not None:
            before = self._observed.get(new.key) if old is not None and old.metadata.uid == new.metadata.uid else None
            self._observed[new.key] = observe(new, self._now(), before)
        elif old is not None:
            self._observed.pop(old.key, None)


class LeaseWatch(LeaseReader):
    """Tells others when another operator comes or goes.

    `changed` is fired on the leader, once when the other operator appears, is replaced by another of its replicas, or
    goes. A Lease that runs out needs no change in the cluster to be noticed: the controller looks again when it ends.
    """

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        lease: str,
        trusted: Callable[[str | None], bool],
        *,
        now: Callable[[], datetime] = utc_now,
        namespace: str | None = None,
    ) -> None:
        """`name` is that of the controller and of the signal."""
        super().__init__(runtime, lease, trusted, now=now, namespace=namespace)
        self.changed = Signal(name)
        self._all = Key(lease)
        self._last: LeaseHolder | None = None
        runtime.controller(name, self._reconcile, workers=1).watch(self._leases, self._concerns)

    def _concerns(self, lease: TimedLease) -> Iterable[Key]:
        return (self._all,) if self._trusted(lease.metadata.namespace) else ()

    async def _reconcile(self, _key: Key) -> Requeue | None:
        holder, before = self.active(), self._last
        self._last = holder
        if not (holder.same_holder(before) if holder else before is None):
            self.changed.fire()
        # A moment later than `until`, so that this very moment is over when the clock is read again.
        return Requeue(after=(holder.until - self._now()).total_seconds() + 0.01) if holder else None


def _parse(written: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(written)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
