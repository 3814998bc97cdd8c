"""Backoff grows, stays in its bounds and is never the same for a crowd."""

import random

from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.kube.backoff import Backoff


@given(st.integers(1, 100_000), st.integers())
def test_delays_stay_between_half_and_the_whole_of_their_ceiling(failures: int, seed: int) -> None:
    backoff = Backoff(first=0.1, most=30.0)
    ceiling = min(30.0, 0.1 * 2.0 ** min(failures - 1, 64))
    assert ceiling / 2 <= backoff.delay(failures, random.Random(seed)) <= ceiling


def test_a_crowd_spreads_out() -> None:
    rng = random.Random(1)
    assert len({Backoff().delay(5, rng) for _ in range(100)}) == 100


def test_full_jitter_uses_the_whole_range() -> None:
    rng = random.Random(1)
    delays = [Backoff(first=10.0, jitter=1.0).delay(1, rng) for _ in range(1000)]
    assert min(delays) < 0.5
    assert max(delays) > 9.5
