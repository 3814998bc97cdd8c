"""Whether NVIDIA's own operator is active: two operators would undo each other's work for ever.

NVIDIA's operator holds one Lease, in the namespace it runs in. It does not release the Lease when it ends, so a Lease
that has run out means either that the operator was removed or that it crashed and is being restarted. In the first case
this operator can wait; in the second, what it would change meanwhile cannot be undone. So the holder counts as active
for ten minutes more. That is longer than a node takes to be declared dead and its pods to be replaced, and longer than
clocks differ. A person who has removed NVIDIA's operator on purpose deletes the Lease, as `kubectl gpu migrate
take-over` does, and has to wait for nothing.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.nvidia.names import LEASE
from gpu_control_plane.kube import Key, Object, Requeue, Resource, Runtime, Selection, Signal
from gpu_control_plane.kube.times import utc_now

GRACE_PERIOD: Final = timedelta(minutes=10)
"""How long the holder of a Lease that has run out still counts as active."""
LEASE_SELECTION: Final = Selection(fields=f"metadata.name={LEASE}")

_ALL: Final = Key(LEASE)


class LeaseTimes(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None


class TimedLease(Object, frozen=True):
    """A Lease with its times. A candidate for leadership must not trust another machine's clock; an observer who only
    sees the Lease has no other."""

    resource: ClassVar[Resource] = Resource("coordination.k8s.io", "v1", "Lease", "leases")

    spec: LeaseTimes = LeaseTimes()

    @property
    def holder(self) -> str:
        return self.spec.holder_identity or ""

    @property
    def ends(self) -> datetime | None:
        """When it runs out unless it is renewed; None for one that was never held."""
        seen = self.spec.renew_time or self.spec.acquire_time or self.metadata.creation_timestamp
        return seen + timedelta(seconds=self.spec.lease_duration_seconds or 0) if seen is not None else None


class LeaseHolder(msgspec.Struct, frozen=True):
    """The active replica of an operator. `until` is when it stops to count as active unless it renews its Lease."""

    namespace: str
    holder: str
    until: datetime

    def same_holder(self, other: "LeaseHolder | None") -> bool:
        """Whether it is the same replica, however often it has renewed its Lease meanwhile."""
        return other is not None and (self.namespace, self.holder) == (other.namespace, other.holder)


def active_holder(leases: Iterable[TimedLease], now: datetime) -> LeaseHolder | None:
    """The active replica of NVIDIA's operator, by its Leases; of several the one that lasts longest."""
    holders = [holder for lease in leases if (holder := _holder(lease)) is not None and holder.until > now]
    return max(holders, key=lambda holder: (holder.until, holder.namespace), default=None)


def _holder(lease: TimedLease) -> LeaseHolder | None:
    if lease.ends is None:
        return None
    until = lease.ends + GRACE_PERIOD if lease.holder else lease.ends
    return LeaseHolder(namespace=lease.metadata.namespace or "", holder=lease.holder, until=until)


class NVIDIALeaseWatch:
    """Watches the Leases of NVIDIA's operator in all namespaces.

    `active` is right on every replica at any moment. `changed` is fired on the leader, once when NVIDIA's operator
    appears, is replaced by another of its replicas, or goes. A Lease that runs out needs no change in the cluster to be
    noticed: the controller looks again when it ends.
    """

    def __init__(self, runtime: Runtime, *, now: Callable[[], datetime] = utc_now) -> None:
        self.changed = Signal("nvidia-lease")
        self._now = now
        self._last: LeaseHolder | None = None
        self._leases = runtime.cache(TimedLease, LEASE_SELECTION)
        runtime.controller("nvidia-lease", self._reconcile, workers=1).watch(self._leases, lambda _lease: (_ALL,))

    def active(self) -> LeaseHolder | None:
        """The active replica of NVIDIA's operator, if there is one."""
        return active_holder(self._leases, self._now())

    async def _reconcile(self, _key: Key) -> Requeue | None:
        holder, before = self.active(), self._last
        self._last = holder
        if not (holder.same_holder(before) if holder else before is None):
            self.changed.fire()
        # A moment later than `until`, so that this very moment is over when the clock is read again.
        return Requeue(after=(holder.until - self._now()).total_seconds() + 0.01) if holder else None
