"""What has failed is tried again after pauses that grow."""

import random
from datetime import timedelta

from gpu_control_plane.ray.cluster.attempts import Attempts
from unit.ray.cluster.pod_world import NOW


def pauses(attempts: Attempts, times: int, *, generation: int = 1, free: int = 0) -> list[float]:
    found = []
    for _ in range(times):
        attempts.failed("uid", "workers", "Why", "quota", generation=generation, now=NOW, free=free)
        found.append((attempts.of("uid", generation)["workers"].not_before - NOW).total_seconds())
    return found


def new() -> Attempts:
    return Attempts(timedelta(minutes=1), random.Random(1))


def test_pauses_grow_up_to_the_longest() -> None:
    found = pauses(new(), 10)
    assert found[:3] == sorted(found[:3])
    assert all(0.8 * 2**n <= pause <= 2**n for n, pause in enumerate(found[:6]))
    assert all(48 <= pause <= 60 for pause in found[6:])


def test_the_first_failures_may_be_free() -> None:
    found = pauses(new(), 3, free=1)
    assert found[0] == 0
    assert 0.8 <= found[1] <= 1


def test_another_spec_is_tried_at_once() -> None:
    attempts = new()
    pauses(attempts, 5)
    assert not attempts.of("uid", 2)
    assert pauses(attempts, 1, generation=2)[0] <= 1


def test_a_success_ends_it() -> None:
    attempts = new()
    pauses(attempts, 5)
    attempts.succeeded("uid", "workers")
    assert not attempts.of("uid", 1)
