"""Nothing that comes in through the socket takes the agent down, or goes without a clear answer."""

import asyncio
import contextlib
from collections.abc import Iterator

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.agent.kubelet.interface import Device
from gpu_control_plane.agent.kubelet.protocol import deviceplugin_pb2 as wire
from unit.agent.kubelet.kubelet import FakeAllocator, Plugin, devices, plugin

GOOD = ("a", "b", "c", "ünï", "GPU-0::1")
ILL = "unhealthy"

IDS = st.lists(st.one_of(st.sampled_from((*GOOD, ILL)), st.text(max_size=300)), max_size=12)
METHODS = st.sampled_from(
    ("GetDevicePluginOptions", "GetPreferredAllocation", "Allocate", "PreStartContainer", "Unknown")
)

QUIET = settings(deadline=None, max_examples=80)


class Served:
    """One agent for all examples, and a way to call it from plain functions."""

    def __init__(self, runner: asyncio.Runner, connection: Plugin) -> None:
        self._runner = runner
        self._plugin = connection

    def raw(self, method: str, payload: bytes) -> bytes | tuple[grpc.StatusCode, str]:
        try:
            return self._runner.run(self._plugin.raw(method, payload))
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""

    def allocate(self, *containers: list[str]) -> bytes | tuple[grpc.StatusCode, str]:
        request = wire.AllocateRequest(
            container_requests=(wire.ContainerAllocateRequest(devices_ids=ids) for ids in containers)
        )
        return self.raw("Allocate", request.SerializeToString())

    def prefer(self, available: list[str], required: list[str], size: int) -> list[str]:
        return self._runner.run(self._plugin.prefer(available, required, size))

    def answers(self) -> bool:
        """Whether a good call is answered."""
        return isinstance(self.allocate(["a"]), bytes)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with asyncio.Runner() as runner:
        agent = contextlib.AsyncExitStack()
        listed = [*devices(*GOOD, unhealthy=(ILL,)), *(Device(f"replica::{number}", True) for number in range(5000))]
        yield Served(runner, runner.run(agent.enter_async_context(plugin(FakeAllocator(), listed))))
        runner.run(agent.aclose())


@QUIET
@given(containers=st.lists(IDS, max_size=4))
def test_devices_are_given_exactly_when_all_of_them_can_be(served: Served, containers: list[list[str]]) -> None:
    answer = served.allocate(*containers)
    possible = bool(containers) and all(ids and len(set(ids)) == len(ids) and set(ids) <= {*GOOD} for ids in containers)
    if possible:
        assert isinstance(answer, bytes)
        given_out = wire.AllocateResponse.FromString(answer).container_responses
        assert [[cdi.name for cdi in one.cdi_devices] for one in given_out] == [
            [f"test/gpu={device}" for device in ids] for ids in containers
        ]
    else:
        assert isinstance(answer, tuple)
        code, sentence = answer
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "gpu.deckhouse.io/training" in sentence
    assert served.answers()


@QUIET
@given(available=IDS, required=IDS, size=st.integers(-(2**31), 2**31 - 1))
def test_a_preference_is_never_an_error(served: Served, available: list[str], required: list[str], size: int) -> None:
    chosen = served.prefer(available, required, size)
    must = {*required} & {*GOOD}
    assert len(chosen) == len(set(chosen))
    assert must <= set(chosen) <= must | ({*available} & {*GOOD})
    assert len(chosen) >= min(size, len(must | ({*available} & {*GOOD})))


@QUIET
@given(method=METHODS, payload=st.binary(max_size=200))
def test_malformed_bytes_get_an_error_or_an_answer(served: Served, method: str, payload: bytes) -> None:
    answer = served.raw(method, payload)
    if isinstance(answer, tuple):
        assert answer[0] in {
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.FAILED_PRECONDITION,
            grpc.StatusCode.UNIMPLEMENTED,
        }
        assert answer[1]
    assert served.answers()


def test_bytes_that_are_no_request_are_named_so(served: Served) -> None:
    assert served.raw("Allocate", b"\xff\xff") == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "2 bytes that are no AllocateRequest",
    )


@pytest.mark.parametrize("prefix", ["replica::", "\N{GRINNING FACE}" * 100], ids=["known", "unknown"])
def test_thousands_of_devices_in_one_request_get_an_answer(served: Served, prefix: str) -> None:
    answer = served.allocate([f"{prefix}{number}" for number in range(5000)])
    if prefix == "replica::":
        assert isinstance(answer, bytes)
    else:
        assert isinstance(answer, tuple)
        assert answer[1].endswith("and 4997 more")


def test_thousands_of_replicas_can_be_preferred(served: Served) -> None:
    replicas = [f"replica::{number}" for number in range(5000)]
    assert served.prefer(replicas, replicas[7:9], 4) == [*replicas[7:9], *replicas[:2]]


def test_a_request_larger_than_a_message_may_be_is_turned_away(served: Served) -> None:
    answer = served.raw("Allocate", b"\x00" * (5 << 20))
    assert isinstance(answer, tuple)
    assert answer[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert served.answers()
