"""Whether NVIDIA's own operator is in charge of the stack: two masters would undo each other's work for ever.

NVIDIA's operator holds one Lease, in the namespace it runs in. It does not give the Lease back when it ends, so a
Lease that has run out means either that it was removed or that it crashed and is being started again. The first can
wait, the second cannot be mended: for ten minutes more the holder counts as being in charge. That is longer than a
node takes to be declared dead and its pods to be replaced, and longer than clocks differ. Who has removed that operator
on purpose deletes the Lease, as `kubectl gpu migrate take-over` does, and waits for nothing.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.nvidia.names import LEASE
from gpu_control_plane.kube import Key, Object, Requeue, Resource, Runtime, Selection
from gpu_control_plane.kube.times import utc_now

GRACE: Final = timedelta(minutes=10)
"""How long the holder of a Lease that has run out may come back."""
SELECTION: Final = Selection(fields=f"metadata.name={LEASE}")

_ALL: Final = Key(LEASE)


class LeaseTimes(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None


class TimedLease(Object, frozen=True):
    """A Lease with its times, which one who takes part in the election must not trust, but an onlooker has to."""

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


class Rival(msgspec.Struct, frozen=True):
    """NVIDIA's operator, in charge. `until` is when that ends if nothing more is heard of it."""

    namespace: str
    holder: str
    until: datetime

    def same(self, other: "Rival | None") -> bool:
        """Whether it is the same operator, however often it has renewed its Lease meanwhile."""
        return other is not None and (self.namespace, self.holder) == (other.namespace, other.holder)


def judge(leases: Iterable[TimedLease], now: datetime) -> Rival | None:
    """Who is in charge, by the Leases of NVIDIA's operator; of several the one that lasts longest."""
    rivals = [rival for lease in leases if (rival := _rival(lease)) is not None and rival.until > now]
    return max(rivals, key=lambda rival: (rival.until, rival.namespace), default=None)


def _rival(lease: TimedLease) -> Rival | None:
    if lease.ends is None:
        return None
    until = lease.ends + GRACE if lease.holder else lease.ends
    return Rival(namespace=lease.metadata.namespace or "", holder=lease.holder, until=until)


class RivalWatch:
    """Follows the Leases of NVIDIA's operator in all namespaces.

    `active` is right on every replica at any moment. Those who asked to be told are told on the leader, once for each
    change of mind, in the order in which they asked; the end of a Lease that nobody renews wakes it, nothing is polled.
    """

    def __init__(self, runtime: Runtime, *, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now
        self._told: list[Callable[[Rival | None], None]] = []
        self._last: Rival | None = None
        self._leases = runtime.cache(TimedLease, SELECTION)
        runtime.controller("rival", self._reconcile, workers=1).watch(self._leases, lambda _lease: (_ALL,))

    def active(self) -> Rival | None:
        """Who is in charge instead of us, if anybody is."""
        return judge(self._leases, self._now())

    def on_change(self, tell: Callable[[Rival | None], None]) -> None:
        """Call `tell` when NVIDIA's operator appears, is replaced by another of its kind, or goes."""
        self._told.append(tell)

    async def _reconcile(self, _key: Key) -> Requeue | None:
        rival = self.active()
        if not (rival.same(self._last) if rival else self._last is None):
            for tell in self._told:
                tell(rival)
        self._last = rival
        # A moment later than `until`, so that this very moment is over when the clock is read again.
        return Requeue(after=(rival.until - self._now()).total_seconds() + 0.01) if rival else None
