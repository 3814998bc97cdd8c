"""When NVIDIA's operator counts as active."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.nvidia.names import LEASE
from gpu_control_plane.kube import ObjectMeta
from gpu_control_plane.operator.nvidia_lease import GRACE_PERIOD, LeaseHolder, LeaseTimes, TimedLease, active_holder

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
HOLDER = "gpu-operator-7d9f-x2x_5f1c"


def lease(
    renewed: float | None, *, holder: str | None = HOLDER, namespace: str = "gpu-operator", seconds: int | None = 15
) -> TimedLease:
    """A Lease that was renewed so many seconds ago."""
    moment = NOW - timedelta(seconds=renewed) if renewed is not None else None
    return TimedLease(
        metadata=ObjectMeta(name=LEASE, namespace=namespace),
        spec=LeaseTimes(holder_identity=holder, lease_duration_seconds=seconds, renew_time=moment),
    )


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
def test_a_lease_says_whether_nvidias_operator_is_active(held: TimedLease, in_charge: bool) -> None:
    assert (active_holder([held], NOW) is not None) is in_charge


def test_without_a_lease_nvidias_operator_is_not_active() -> None:
    assert active_holder([], NOW) is None


def test_a_lease_that_was_taken_but_never_renewed_counts_from_then() -> None:
    taken = TimedLease(
        metadata=ObjectMeta(name=LEASE, namespace="a"),
        spec=LeaseTimes(holder_identity=HOLDER, lease_duration_seconds=15, acquire_time=NOW),
    )
    assert active_holder([taken], NOW) == LeaseHolder("a", HOLDER, NOW + timedelta(seconds=15) + GRACE_PERIOD)


def test_of_several_the_one_that_lasts_longest_is_named() -> None:
    old, new = lease(300, namespace="old"), lease(2, namespace="new")
    assert (
        active_holder([new, old], NOW)
        == active_holder([old, new], NOW)
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
    holder = active_holder(leases, NOW)
    if holder is not None:
        assert active_holder(leases, holder.until - timedelta(microseconds=1)) is not None
        assert active_holder(leases, holder.until) is None
