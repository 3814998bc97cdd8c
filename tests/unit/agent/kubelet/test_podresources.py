"""The kubelet is asked for what it has now, with as few calls as possible."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from gpu_control_plane.agent.kubelet.podresources import KubeletUnavailable, PodResources
from gpu_control_plane.agent.kubelet.protocol import podresources_pb2 as wire
from gpu_control_plane.agent.units import ContainerDevices
from waiting import until

ONE = "gpu.deckhouse.io/one"
TWO = "gpu.deckhouse.io/two"

type Allocations = dict[tuple[str, str, str], list[tuple[str, list[str]]]]


class FakePodResources:
    """Serves the pod-resources API from what it is told."""

    def __init__(self, folder: Path) -> None:
        self.address = f"unix://{folder}/kubelet.sock"
        self.pod_resources: Allocations = {}
        self.healthy: list[tuple[str, list[str]]] = []
        self.crowded = 0
        """How many of the next calls are turned away."""
        self.calls = Counter[str]()
        self.answering = asyncio.Event()
        self.answering.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        call = grpc.unary_unary_rpc_method_handler
        server = grpc.aio.server()
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "List": call(self._list, None, wire.ListPodResourcesResponse.SerializeToString),
            "GetAllocatableResources": call(
                self._allocatable, None, wire.AllocatableResourcesResponse.SerializeToString
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),))
        server.add_insecure_port(self.address)
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)

    async def _list(self, _raw: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> wire.ListPodResourcesResponse:
        pods = tuple(
            wire.PodResources(
                namespace=namespace,
                name=pod,
                containers=(wire.ContainerResources(name=container, devices=_devices(devices)),),
            )
            for (namespace, pod, container), devices in self.pod_resources.items()
        )
        await self._turn("List", context)
        return wire.ListPodResourcesResponse(pod_resources=pods)

    async def _allocatable(
        self, _raw: bytes, context: grpc.aio.ServicerContext[Any, Any]
    ) -> wire.AllocatableResourcesResponse:
        await self._turn("GetAllocatableResources", context)
        return wire.AllocatableResourcesResponse(devices=_devices(self.healthy))

    async def _turn(self, method: str, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self.calls[method] += 1
        if self.crowded:
            self.crowded -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        await self.answering.wait()


def _devices(some: list[tuple[str, list[str]]]) -> tuple[wire.ContainerDevices, ...]:
    return tuple(wire.ContainerDevices(resource_name=resource, device_ids=ids) for resource, ids in some)


async def test_holders_are_listed_by_container_and_resource(folder: Path) -> None:
    kubelet = FakePodResources(folder)
    kubelet.pod_resources = {
        ("team", "b", "main"): [(ONE, ["2"]), (TWO, ["x"]), (ONE, ["1"])],
        ("team", "a", "main"): [],
        ("other", "c", "side"): [(ONE, ["3"])],
    }
    async with kubelet.running():
        held = await PodResources(kubelet.address).list()
    assert held == (
        ContainerDevices("other", "c", "side", ONE, ("3",)),
        ContainerDevices("team", "b", "main", ONE, ("1", "2")),
        ContainerDevices("team", "b", "main", TWO, ("x",)),
    )


async def test_allocatable_devices_are_gathered_by_resource(folder: Path) -> None:
    kubelet = FakePodResources(folder)
    kubelet.healthy = [(ONE, ["1"]), (TWO, ["x"]), (ONE, ["2"])]
    async with kubelet.running():
        assert await PodResources(kubelet.address).allocatable() == {ONE: frozenset("12"), TWO: frozenset("x")}


async def test_a_kubelet_that_restarts_is_read_at_once(folder: Path) -> None:
    kubelet = FakePodResources(folder)
    pod_resources = PodResources(kubelet.address, pause=0.0)
    for number in ("1", "2"):
        with pytest.raises(KubeletUnavailable, match="did not answer List: UNAVAILABLE"):
            await pod_resources.list()
        kubelet.pod_resources = {("team", number, "main"): [(ONE, [number])]}
        async with kubelet.running():
            assert [held.ids for held in await pod_resources.list()] == [(number,)]


async def test_a_kubelet_that_hangs_is_unavailable(folder: Path) -> None:
    kubelet = FakePodResources(folder)
    kubelet.answering.clear()
    async with kubelet.running():
        with pytest.raises(KubeletUnavailable, match="DEADLINE_EXCEEDED"):
            await PodResources(kubelet.address, timeout=0.1).allocatable()


async def test_a_crowded_kubelet_is_asked_again_but_not_for_ever(folder: Path) -> None:
    kubelet = FakePodResources(folder)
    pod_resources = PodResources(kubelet.address, pause=0.01)
    async with kubelet.running():
        kubelet.crowded = 2
        assert await pod_resources.list() == ()
        kubelet.crowded = 10
        with pytest.raises(KubeletUnavailable, match="rate limit"):
            await pod_resources.list()
    assert kubelet.calls["List"] == 6


async def test_a_hundred_askers_share_two_calls(folder: Path) -> None:
    kubelet = FakePodResources(folder)
    pod_resources = PodResources(kubelet.address)
    async with kubelet.running():
        kubelet.answering.clear()
        first = asyncio.create_task(pod_resources.list())
        await until(lambda: kubelet.calls["List"])
        others = [asyncio.create_task(pod_resources.list()) for _ in range(99)]
        kubelet.answering.set()
        await asyncio.gather(first, *others)
    assert kubelet.calls["List"] == 2


async def test_an_answer_is_never_from_before_the_question(folder: Path) -> None:
    kubelet = FakePodResources(folder)
    pod_resources = PodResources(kubelet.address)
    async with kubelet.running():
        kubelet.answering.clear()
        before = asyncio.create_task(pod_resources.list())
        await until(lambda: kubelet.calls["List"])
        kubelet.pod_resources = {("team", "new", "main"): [(ONE, ["1"])]}
        after = asyncio.create_task(pod_resources.list())
        await asyncio.sleep(0)
        kubelet.answering.set()
        assert (await before, [held.pod for held in await after]) == ((), ["new"])


async def test_a_caller_that_is_cancelled_cancels_no_other(folder: Path) -> None:
    kubelet = FakePodResources(folder)
    pod_resources = PodResources(kubelet.address)
    async with kubelet.running():
        kubelet.answering.clear()
        impatient, patient = asyncio.create_task(pod_resources.list()), asyncio.create_task(pod_resources.list())
        await until(lambda: kubelet.calls["List"])
        impatient.cancel()
        kubelet.answering.set()
        assert await patient == ()


async def test_calls_keep_their_distance(folder: Path) -> None:
    kubelet = FakePodResources(folder)
    pod_resources = PodResources(kubelet.address)
    loop = asyncio.get_running_loop()
    async with kubelet.running():
        begin = loop.time()
        for _ in range(5):
            await pod_resources.list()
    assert loop.time() - begin >= 4 * 0.05


def test_an_address_that_is_no_unix_socket_is_refused() -> None:
    with pytest.raises(ValueError, match="unix:///path"):
        PodResources("/var/lib/kubelet/pod-resources/kubelet.sock")
