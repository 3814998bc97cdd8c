"""Evictions: what a refusal, a pod that is gone and a pod that goes mean."""

import random
from typing import Any

import pytest

from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import Conflict, KubeError, NotFound, TooManyRequests, Unreachable
from gpu_control_plane.operator.upgrade.evictor import Evictor
from unit.operator.upgrade.builders import gpu_pod

POD = gpu_pod()
UID = POD.metadata.uid


class Server(Client):
    """Answers every eviction alike, and remembers what was asked."""

    def __init__(self, answer: KubeError | None) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def post(self, *arguments: Any, **options: Any) -> None:
        self.asked.append((arguments, options))
        if self.answer is not None:
            raise self.answer


def evictions(answer: KubeError | None = None) -> tuple[Evictor, Server]:
    server = Server(answer)
    return Evictor(server, lambda: 100.0, random.Random(1)), server


async def test_only_the_pod_with_the_same_uid_is_evicted() -> None:
    made, server = evictions()
    await made.evict("worker", POD)
    ((_kind, name, subresource, body), options) = server.asked[0]
    assert (name, subresource, options) == ("train-1", "eviction", {"namespace": "work"})
    assert body["deleteOptions"] == {"preconditions": {"uid": UID}}


@pytest.mark.parametrize("answer", [None, NotFound(404, "NotFound", "gone")])
async def test_a_pod_that_is_leaving_or_gone_is_not_evicted_again(answer: KubeError | None) -> None:
    made, _server = evictions(answer)
    assert await made.evict("worker", POD) is None
    assert made.leaving("worker") == {UID: 100.0}
    assert made.leaving("another") == {}


async def test_a_pod_that_was_changed_meanwhile_is_evicted_again() -> None:
    made, _server = evictions(Conflict(409, "Conflict", "the object has been modified"))
    assert await made.evict("worker", POD) is not None
    assert not made.leaving("worker")


@pytest.mark.parametrize("answer", [None, NotFound(404, "NotFound", "gone"), TooManyRequests(429, "", "no")])
async def test_any_answer_counts_as_a_request(answer: KubeError | None) -> None:
    made, _server = evictions(answer)
    assert made.since("worker") is None
    await made.evict("worker", POD)
    assert made.since("worker") == 100.0
    made.forget("worker")
    assert made.since("worker") is None


async def test_a_refused_eviction_is_retried_with_a_growing_back_off() -> None:
    made, server = evictions(TooManyRequests(429, "TooManyRequests", "it would violate the budget"))
    pauses = []
    for _ in range(6):
        refusal = await made.evict("worker", POD)
        assert refusal is not None
        pauses.append(refusal.until - 100.0)
    assert 2.5 <= pauses[0] <= 5.0
    assert 30.0 <= pauses[-1] <= 60.0
    assert made.refusals("worker")[UID].why == "it would violate the budget"
    server.answer = None
    await made.evict("worker", POD)
    assert not made.refusals("worker")


async def test_no_answer_is_no_refusal() -> None:
    made, _server = evictions(Unreachable("no answer"))
    with pytest.raises(Unreachable):
        await made.evict("worker", POD)
    assert not made.refusals("worker")
    assert made.since("worker") is None


async def test_requests_are_forgotten_with_the_state_of_the_node() -> None:
    made, server = evictions()
    await made.evict("worker", POD)
    server.answer = TooManyRequests(429, "TooManyRequests", "no")
    await made.evict("worker", gpu_pod("other"))
    made.forget("worker")
    assert not made.leaving("worker")
    assert not made.refusals("worker")
