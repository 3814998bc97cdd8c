"""Whatever the kubelet asks, it gets an answer or a clear refusal, and the next good question is answered."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from gpu_control_plane.agent.kubelet.interface import AllocationRefused, ContainerAllocation, DeviceNode, Mount
from gpu_control_plane.agent.kubelet.metrics import PluginMetrics
from gpu_control_plane.agent.kubelet.protocol import deviceplugin_pb2 as wire
from unit.agent.kubelet.kubelet import RESOURCE, FakeAllocator, devices, plugin

GOOD = ("a", "b", "c")
UNHEALTHY = "broken"


async def refusal(call: Coroutine[Any, Any, object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value.code(), raised.value.details() or ""


class AllocatorWithEverything(FakeAllocator):
    async def allocate(self, resource: str, ids: tuple[str, ...]) -> ContainerAllocation:
        return ContainerAllocation(
            cdi_devices=("vendor/gpu=one",),
            devices=(DeviceNode("/dev/nvidia0", "/dev/nvidia3"),),
            mounts=(Mount("/lib/x", "/host/x"),),
            envs={"A": "1"},
            annotations={"B": "2"},
        )


async def test_an_answer_reaches_the_kubelet_complete() -> None:
    async with plugin(AllocatorWithEverything(), devices(*GOOD)) as kubelet:
        (answer,) = (await kubelet.allocate(["a"])).container_responses
    assert answer == wire.ContainerAllocateResponse(
        cdi_devices=(wire.CDIDevice(name="vendor/gpu=one"),),
        devices=(wire.DeviceSpec(container_path="/dev/nvidia0", host_path="/dev/nvidia3", permissions="rw"),),
        mounts=(wire.Mount(container_path="/lib/x", host_path="/host/x", read_only=True),),
        envs={"A": "1"},
        annotations={"B": "2"},
    )


async def test_each_container_gets_its_own_answer() -> None:
    async with plugin(FakeAllocator(), devices(*GOOD)) as kubelet:
        answers = (await kubelet.allocate(["a", "b"], ["c"])).container_responses
    assert [[device.name for device in answer.cdi_devices] for answer in answers] == [
        ["test/gpu=a", "test/gpu=b"], ["test/gpu=c"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("containers", "sentence"),
    [
        ([], "the request for gpu.deckhouse.io/training names no container"),
        ([[]], "the request for gpu.deckhouse.io/training names no device"),
        ([["a"], []], "the request for gpu.deckhouse.io/training names no device"),
        ([["a", "a"]], "the request for gpu.deckhouse.io/training names a device twice: 'a', 'a'"),
        ([["a", "x"]], "gpu.deckhouse.io/training has no such device: 'x'"),
        ([["ä\n"]], r"gpu.deckhouse.io/training has no such device: '\xe4\n'"),
        ([list("stuvw")], "gpu.deckhouse.io/training has no such device: 's', 't', 'u' and 2 more"),
        (
            [[UNHEALTHY]],
            "gpu.deckhouse.io/training no longer offers 'broken': faulty, or about to move to another resource",
        ),
    ],
)
async def test_what_cannot_be_given_is_refused_with_a_sentence(containers: list[list[str]], sentence: str) -> None:
    async with plugin(FakeAllocator(), devices(*GOOD, unhealthy=[UNHEALTHY])) as kubelet:
        assert await refusal(kubelet.allocate(*containers)) == (grpc.StatusCode.FAILED_PRECONDITION, sentence)


class RefusingAllocator(FakeAllocator):
    """Refuses, fails or hangs, by device."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def allocate(self, resource: str, ids: tuple[str, ...]) -> ContainerAllocation:
        match ids:
            case ("a",):
                raise AllocationRefused("a pod may have one replica only: ask for 1")
            case ("b",):
                raise ZeroDivisionError("secret")
            case ("long",):
                raise AllocationRefused("\N{GRINNING FACE}" * 100_000)
            case ("c",):
                self.asked.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
        return ContainerAllocation()

    def prefer(self, resource: str, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("device", "code", "sentence"),
    [
        ("a", grpc.StatusCode.FAILED_PRECONDITION, "a pod may have one replica only: ask for 1"),
        ("long", grpc.StatusCode.FAILED_PRECONDITION, "\N{GRINNING FACE}" * 500),
        ("b", grpc.StatusCode.INTERNAL, "the node agent failed over gpu.deckhouse.io/training: ZeroDivisionError"),
        (
            "c",
            grpc.StatusCode.DEADLINE_EXCEEDED,
            "the node agent did not decide about gpu.deckhouse.io/training within",
        ),
    ],
)
async def test_an_allocator_that_refuses_fails_or_hangs_is_told_apart(
    device: str, code: grpc.StatusCode, sentence: str
) -> None:
    registry = CollectorRegistry()
    async with plugin(RefusingAllocator(), devices(*GOOD, "d", "long"), PluginMetrics(registry), limit=0.05) as kubelet:
        told = await refusal(kubelet.allocate([device]))
        await kubelet.allocate(["d"])
    assert told[0] is code
    assert told[1].startswith(sentence)
    counts = [
        registry.get_sample_value(f"gpu_agent_plugin_{what}_total", {"resource": RESOURCE})
        for what in ("refusals", "allocations")
    ]
    assert counts == [1, 1]


async def test_a_call_that_the_kubelet_gives_up_ends_here_too() -> None:
    allocator = RefusingAllocator()
    async with plugin(allocator, devices(*GOOD, "d")) as kubelet:
        call = asyncio.create_task(kubelet.allocate(["c"]))
        await asyncio.wait_for(allocator.asked.wait(), 60)
        call.cancel()
        await asyncio.wait_for(allocator.cancelled.wait(), 60)
        await kubelet.allocate(["d"])


async def test_a_preference_that_fails_falls_back_to_the_required_and_the_first() -> None:
    async with plugin(RefusingAllocator(), devices(*GOOD)) as kubelet:
        assert await kubelet.prefer(["a", "b", "c"], ["c"], 2) == ["c", "a"]


class InvalidPreference(FakeAllocator):
    """Prefers devices that were not among the available ones."""

    def __init__(self, answer: Sequence[str]) -> None:
        self.answer = answer

    def prefer(self, resource: str, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        return self.answer


@pytest.mark.parametrize("answer", [("x", "y"), ("a",), ("a", "b", "c"), ("a", "b"), ()])
async def test_a_preference_that_makes_no_sense_is_not_passed_on(answer: Sequence[str]) -> None:
    async with plugin(InvalidPreference(answer), devices(*GOOD)) as kubelet:
        assert await kubelet.prefer(["a", "b", "c"], ["c"], 2) == ["c", "a"]


async def test_preferred_allocation_is_offered() -> None:
    async with plugin(FakeAllocator(), devices(*GOOD)) as kubelet:
        options = await kubelet.options()
        assert await kubelet.prefer(["a", "b", "c"], [], 2) == ["b", "c"]
    assert (options.get_preferred_allocation_available, options.pre_start_required) == (True, False)
