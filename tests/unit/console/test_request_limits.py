import pytest

from gpu_control_plane.console.errors import TooManyRequests
from gpu_control_plane.console.request_limits import Limit, RequestLimits
from unit.console.test_sessions import Clock


def test_a_burst_passes_then_so_many_a_second() -> None:
    clock = Clock()
    limits = RequestLimits(Limit(burst=3, per_second=2), clock)
    for _ in range(3):
        limits.take("alice")
    with pytest.raises(TooManyRequests):
        limits.take("alice")
    limits.take("bob")
    clock.now += 0.5
    limits.take("alice")
    with pytest.raises(TooManyRequests):
        limits.take("alice")


def test_the_memory_for_addresses_is_bounded() -> None:
    clock = Clock()
    limits = RequestLimits(Limit(burst=1, per_second=1), clock)
    for number in range(20_000):
        limits.take(number)
    assert len(limits._buckets) == 10_000
