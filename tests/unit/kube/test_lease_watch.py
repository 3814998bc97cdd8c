"""When another operator counts as active, by its Lease."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.kube import ObjectMeta
from gpu_control_plane.kube.lease_watch import (
    GRACE_PERIOD,
    MAX_CLOCK_SKEW,
    MAX_DURATION,
    LeaseHolder,
    LeaseTimes,
    ObservedLease,
    TimedLease,
    active_holder,
    observe,
)
from gpu_control_plane.kube.times import micro_time

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
LEASE = "another-operator"
HOLDER = "gpu-operator-7d9f-x2x_5f1c"


def lease(
    renewed: float | None, *, holder: str | None = HOLDER, namespace: str = "gpu-operator", seconds: int | None = 15
) -> TimedLease:
    """A Lease that was renewed so many seconds ago."""
    moment = micro_time(NOW - timedelta(seconds=renewed)) if renewed is not None else None
    return TimedLease(
        metadata=ObjectMeta(name=LEASE, namespace=namespace),
        spec=LeaseTimes(holder_identity=holder, lease_duration_seconds=seconds, renew_time=moment),
    )


def active(leases: list[TimedLease], now: datetime = NOW) -> LeaseHolder | None:
    """The holder where each Lease was seen for the first time at `NOW`."""
    return active_holder([observe(one, NOW) for one in leases], now)


@pytest.mark.parametrize(
    ("held", "in_charge"),
    [
        (lease(1), True),
        (lease(14.9), True),
        (lease(16), True),  # crashed, and may come back
        (lease(15 + 599), True),
        (lease(15 + 600), False),
        (lease(15 + 86400), False),
        (lease(-60), True),  # its clock is ahead of ours
        (lease(0.5, holder="", seconds=1), True),  # given back, for as long as the next one has to take it
        (lease(1, holder="", seconds=1), False),
        (lease(16, holder=None), False),
        (lease(None), False),  # never held
        (lease(0, seconds=None), True),
    ],
)
def test_a_lease_says_whether_the_operator_is_active(held: TimedLease, in_charge: bool) -> None:
    assert (active([held]) is not None) is in_charge


def test_without_a_lease_it_is_not_active() -> None:
    assert active([]) is None


def test_a_lease_that_was_taken_but_never_renewed_counts_from_then() -> None:
    taken = TimedLease(
        metadata=ObjectMeta(name=LEASE, namespace="a"),
        spec=LeaseTimes(holder_identity=HOLDER, lease_duration_seconds=15, acquire_time=micro_time(NOW)),
    )
    assert active([taken]) == LeaseHolder("a", HOLDER, NOW + timedelta(seconds=15) + GRACE_PERIOD)


def test_of_several_the_one_that_lasts_longest_is_named() -> None:
    old, new = lease(300, namespace="old"), lease(2, namespace="new")
    assert (
        active([new, old])
        == active([old, new])
        == LeaseHolder("new", HOLDER, NOW + timedelta(seconds=13) + GRACE_PERIOD)
    )


_LEASES = st.lists(
    st.builds(
        lease,
        st.none() | st.floats(-100, 2000),
        holder=st.sampled_from([None, "", HOLDER]),
        namespace=st.sampled_from("abc"),
        seconds=st.sampled_from([None, 1, 15, 60]),
    ),
    max_size=4,
)


@given(_LEASES)
def test_until_is_exactly_when_the_holder_stops_to_be_active(leases: list[TimedLease]) -> None:
    holder = active(leases)
    if holder is not None:
        assert active(leases, holder.until - timedelta(microseconds=1)) is not None
        assert active(leases, holder.until) is None


def written(time: str | None, *, seconds: int = 15) -> TimedLease:
    return TimedLease(
        metadata=ObjectMeta(name=LEASE, namespace="gpu-operator"),
        spec=LeaseTimes(holder_identity=HOLDER, lease_duration_seconds=seconds, renew_time=time),
    )


@pytest.mark.parametrize(
    "time",
    [
        "0000-01-01T00:00:00.000000Z",
        "-001-12-31T23:00:00.000000Z",
        "9999-12-31T23:59:59.999999Z",
        "10000-01-01T00:59:59.000000Z",
        micro_time(NOW + MAX_CLOCK_SKEW + timedelta(seconds=1)),
    ],
)
def test_a_time_that_cannot_be_is_nobodys(time: str) -> None:
    dead = written(time, seconds=2**31 - 1)
    assert active([dead]) is None
    # Nor is a Lease renewed that came to it from a good time.
    assert observe(dead, NOW, observe(lease(1), NOW)).until is None


def test_a_lease_lasts_an_hour_at_most() -> None:
    held = active([written(micro_time(NOW), seconds=2**31 - 1)])
    assert held is not None
    assert held.until == NOW + MAX_DURATION + GRACE_PERIOD


def test_a_renewal_counts_from_the_moment_it_is_seen() -> None:
    """However far the holder's clock is behind ours; and only a time that has moved on is a renewal."""
    behind = timedelta(hours=3)
    first = observe(written(micro_time(NOW - behind)), NOW)
    assert first.until is not None
    assert first.until < NOW
    later = NOW + timedelta(seconds=2)
    second = observe(written(micro_time(later - behind)), later, first)
    assert second.renewed == later
    assert observe(second.lease, later + timedelta(minutes=9), second) == second
    back = observe(written(micro_time(NOW - behind)), later, second)
    assert back.renewed == NOW - behind


@given(st.text() | st.datetimes().map(str), st.integers(-(2**31), 2**31 - 1))
def test_nothing_that_is_written_overflows(time: str, seconds: int) -> None:
    seen = observe(written(time, seconds=seconds), NOW)
    assert isinstance(seen, ObservedLease)
    assert seen.until is None or seen.until <= NOW + MAX_DURATION + GRACE_PERIOD
