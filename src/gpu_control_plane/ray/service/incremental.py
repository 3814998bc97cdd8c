"""The steps of an incremental upgrade, and of the way back: first capacity, then requests, a little at a time. Pure.

The two clusters never have more than 100 % and one surge of capacity together. Requests go only to capacity that has
been made, and the state of the steps is in the status alone, so whoever goes on after a crash goes on rightly.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

ALL: Final = 100


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one cluster has, in percent."""

    capacity: int
    traffic: int


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that is to have everything, and the one that had."""

    target: Share
    source: Share
    moved: datetime | None = None
    """When requests moved last."""

    @property
    def complete(self) -> bool:
        return self.target == Share(capacity=ALL, traffic=ALL) and self.source == Share(capacity=0, traffic=0)


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """How large steps are."""

    surge: int = ALL
    step: int
    interval: timedelta


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The shares from now on, and why they are no others yet."""

    shares: Shares
    waits_for: str = ""
    again_in: timedelta | None = None


def next_step(  # noqa: PLR0911 - one question after the other
    shares: Shares, steps: Steps, *, target_ready: bool, gateway_ready: bool, now: datetime
) -> Step:
    """The next step, or what it waits for."""
    target, source = shares.target, shares.source
    if shares.complete:
        return Step(shares=shares)
    if not gateway_ready:
        return Step(shares=shares, waits_for="the Gateway and the HTTPRoute to be accepted")
    if not target_ready:
        return Step(shares=shares, waits_for="the applications to run with the capacity that was asked for")
    if target.traffic < target.capacity:
        left = shares.moved + steps.interval - now if shares.moved is not None else timedelta()
        if left > timedelta():
            return Step(shares=shares, waits_for="the interval between two steps", again_in=left)
        traffic = min(target.capacity, target.traffic + steps.step)
        return Step(shares=_with_traffic(shares, traffic, now))
    if target.traffic > target.capacity:
        # Capacity follows, as it does after a change of direction.
        return Step(shares=_with_capacity(shares, target.traffic, source.capacity))
    if target.capacity + source.capacity <= ALL:
        return Step(shares=_with_capacity(shares, min(ALL, target.capacity + steps.surge), source.capacity))
    return Step(shares=_with_capacity(shares, target.capacity, max(source.traffic, source.capacity - steps.surge, 0)))


def _with_traffic(shares: Shares, traffic: int, now: datetime) -> Shares:
    return Shares(
        target=Share(capacity=shares.target.capacity, traffic=traffic),
        source=Share(capacity=shares.source.capacity, traffic=ALL - traffic),
        moved=now,
    )


def _with_capacity(shares: Shares, target: int, source: int) -> Shares:
    return Shares(
        target=Share(capacity=target, traffic=shares.target.traffic),
        source=Share(capacity=source, traffic=shares.source.traffic),
        moved=shares.moved,
    )
