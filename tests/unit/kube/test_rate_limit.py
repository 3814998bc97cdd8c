"""Work is done at most once in a while for each key."""

import asyncio

from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.rate_limit import RateLimit
from simulation.loop import SimulatedLoop

A, B = Key("a"), Key("b")


async def test_the_first_time_there_is_no_wait() -> None:
    assert RateLimit(60).wait(A) is None


async def test_a_key_that_comes_too_early_is_requeued_for_the_rest_of_the_interval() -> None:
    limit = RateLimit(60)
    limit.mark(A)
    later = limit.wait(A)
    assert later is not None
    assert 59 < later.after <= 60
    assert limit.wait(B) is None, "each key has its own pace"


def test_after_the_interval_there_is_no_wait() -> None:
    async def wait_twice() -> None:
        limit = RateLimit(60)
        limit.mark(A)
        await asyncio.sleep(59)
        assert limit.wait(A) is not None
        await asyncio.sleep(1)
        assert limit.wait(A) is None

    SimulatedLoop(0).run(wait_twice())


async def test_what_is_forgotten_begins_anew() -> None:
    limit = RateLimit(60)
    limit.mark(A)
    limit.forget(A)
    assert limit.wait(A) is None
