"""Work is done at most once in a while for each key."""

import asyncio

from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.rate_limit import RateLimit

A, B = Key("a"), Key("b")


async def test_the_first_time_there_is_no_wait() -> None:
    assert RateLimit(60).wait(A) is None


async def test_a_key_that_comes_too_early_is_requeued_for_the_rest_of_the_interval() -> None:
    pace = RateLimit(60)
    pace.mark(A)
    later = pace.wait(A)
    assert later is not None
    assert 59 < later.after <= 60
    assert pace.wait(B) is None, "each key has its own pace"


async def test_after_the_interval_there_is_no_wait() -> None:
    pace = RateLimit(0.01)
    pace.mark(A)
    await asyncio.sleep(0.02)
    assert pace.wait(A) is None


async def test_what_is_forgotten_begins_anew() -> None:
    pace = RateLimit(60)
    pace.mark(A)
    pace.forget(A)
    assert pace.wait(A) is None
