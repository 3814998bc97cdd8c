"""Random reviews through the handler as it is served: it never fails, lets nobody in by mistake, and asks for no more
than it should. `make test-long` tries a hundred thousand."""

import base64
import random
import sys
from typing import Any

import msgspec
import pytest

from gpu_control_plane.admission.controller import PodReviews
from gpu_control_plane.api import GPUNodeState, GPUPool
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube.admission import BadReviewError, encode_review, parse_review
from unit.admission.fuzzed_reviews import POOLS, fuzzed_review, node
from unit.operator.scripted_cache import ScriptedCache, running


async def test_no_review_makes_the_handler_fail_or_let_a_pod_in_by_mistake(request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--seed") or random.SystemRandom().getrandbits(32)
    count = request.config.getoption("--reviews")
    sys.stdout.write(f"seed {seed}\n")
    rng = random.Random(seed)
    pools, states = ScriptedCache(GPUPool), ScriptedCache(GPUNodeState)
    reviews = PodReviews(pools.cache, states.cache)
    tally = {True: 0, False: 0, None: 0}
    async with running(pools, states):
        for pool in POOLS.values():
            await pools.deliver(pool)
        await states.deliver(node())
        for number in range(count):
            body, let_in = fuzzed_review(rng)
            tally[let_in] += 1
            answer = await _answer(reviews, body)
            assert answer is not None or let_in is None, f"review {number} of seed {seed}: {body!r}"
            if answer is not None and let_in is not None:
                assert answer["allowed"] is let_in, f"review {number} of seed {seed}: {body!r} {answer}"
                assert _only_adds(answer), f"review {number} of seed {seed}: {body!r} {answer}"
    assert all(tally.values()), tally


async def _answer(reviews: PodReviews, body: bytes) -> dict[str, Any] | None:
    """What the API server is told; None where it is told that this is no review."""
    try:
        request = parse_review(body, Pod)
    except BadReviewError:
        return None
    content = encode_review(request, await reviews.review(request))
    answer: dict[str, Any] = msgspec.json.decode(content)["response"]
    assert answer["allowed"] or answer["status"]["message"]
    return answer


def _only_adds(answer: dict[str, Any]) -> bool:
    """Nothing that the pod says is changed or removed."""
    patch = base64.b64decode(answer.get("patch", ""))
    steps = msgspec.json.decode(patch) if patch else []
    return all(step["op"] == "add" and step["path"].startswith(_ADDED) for step in steps)


_ADDED = (
    "/metadata/labels",
    "/metadata/annotations",
    "/spec/tolerations",
    "/spec/affinity",
    "/spec/topologySpreadConstraints",
)
