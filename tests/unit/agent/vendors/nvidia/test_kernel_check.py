"""The kernel's program, with a driver made of host memory: what it calls, what it frees, what it says.

That the driver takes the PTX, and that the calls have the right shape for it, only a real card can prove.
"""

import ctypes
import json
import os
from array import array
from pathlib import Path
from typing import Any

import pytest

from gpu_control_plane.agent.vendors.nvidia.cuda import kernel_check as program
from gpu_control_plane.agent.vendors.nvidia.cuda.kernel_check import ELEMENTS, PTX, check, main, run
from gpu_control_plane.agent.vendors.nvidia.cuda.libcuda import Cuda, CudaFailure


class HostCuda(Cuda):
    """Computes on the processor what the card would, and keeps account of what was taken and given back."""

    def __init__(self, *, fails: str = "", code: int = 700, wrong: bool = False) -> None:
        self.calls: list[str] = []
        self.held: set[str] = set()
        self._memory: dict[int, Any] = {}
        self._fails, self._code, self._wrong = fails, code, wrong

    def call(self, name: str, *arguments: Any) -> None:
        self.calls.append(name)
        if name == self._fails or (self._fails in self.calls and name == "cuMemFree_v2"):
            raise CudaFailure(name, f"{name} answered {self._code}", busy=self._code == 46)
        if hasattr(self, f"_{name}"):
            getattr(self, f"_{name}")(*arguments)

    def _cuDevicePrimaryCtxRetain(self, *_arguments: Any) -> None:  # noqa: N802 - named after the driver's calls
        self.held.add("context")

    def _cuDevicePrimaryCtxRelease_v2(self, *_arguments: Any) -> None:  # noqa: N802
        self.held.remove("context")

    def _cuModuleLoadData(self, _module: Any, text: bytes) -> None:  # noqa: N802
        assert text is PTX
        self.held.add("module")

    def _cuModuleUnload(self, *_arguments: Any) -> None:  # noqa: N802
        self.held.remove("module")

    def _cuMemAlloc_v2(self, address: Any, size: ctypes.c_size_t) -> None:  # noqa: N802
        memory = ctypes.create_string_buffer(size.value)
        address._obj.value = ctypes.addressof(memory)
        self._memory[address._obj.value] = memory
        self.held.add(str(address._obj.value))

    def _cuMemFree_v2(self, address: ctypes.c_uint64) -> None:  # noqa: N802
        self.held.remove(str(address.value))

    def _cuMemcpyHtoD_v2(self, there: ctypes.c_uint64, here: Any, size: ctypes.c_size_t) -> None:  # noqa: N802
        ctypes.memmove(there.value or 0, here, size.value)

    def _cuMemcpyDtoH_v2(self, here: Any, there: ctypes.c_uint64, size: ctypes.c_size_t) -> None:  # noqa: N802
        ctypes.memmove(here, there.value or 0, size.value)

    def _cuLaunchKernel(self, _function: Any, *rest: Any) -> None:  # noqa: N802
        blocks, threads, places = rest[0], rest[3], rest[8]
        xs, ys = (ctypes.c_uint64.from_address(places[index]).value for index in range(2))
        factor = ctypes.c_float.from_address(places[2]).value
        count = ctypes.c_uint32.from_address(places[3]).value
        assert blocks * threads >= count == ELEMENTS
        source, target = ((ctypes.c_float * count).from_address(place) for place in (xs, ys))
        target[:] = [factor * x + y for x, y in zip(source, target, strict=True)]
        if self._wrong:
            target[count - 1] += 1


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_CACHE_DISABLE"):
        monkeypatch.setenv(name, "before")


def test_a_kernel_that_works_is_told_and_leaves_nothing_behind() -> None:
    cuda = HostCuda()
    answer = run("GPU-1", cuda)
    assert (answer["ok"], answer["elements"]) == (True, ELEMENTS)
    assert cuda.held == set()


def test_a_wrong_element_is_found_wherever_it_is() -> None:
    cuda = HostCuda(wrong=True)
    with pytest.raises(CudaFailure, match=f"element {ELEMENTS - 1} .* computes wrongly"):
        run("GPU-1", cuda)
    assert cuda.held == set()


@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuMemcpyHtoD_v2", "cuModuleGetFunction"])
def test_the_context_is_given_back_after_a_failure(call: str) -> None:
    cuda = HostCuda(fails=call)
    with pytest.raises(CudaFailure):
        run("GPU-1", cuda)
    assert "context" not in cuda.held


def test_a_uuid_makes_only_that_card_visible_and_an_address_finds_its_card() -> None:
    by_uuid, by_address = HostCuda(), HostCuda()
    run("MIG-1", by_uuid)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "MIG-1"
    run("0000:65:00.0", by_address)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert ("cuDeviceGet" in by_uuid.calls, "cuDeviceGetByPCIBusId" in by_address.calls) == (True, True)


@pytest.mark.parametrize(
    ("cuda", "code", "said"),
    [
        (HostCuda(), 0, {"ok": True}),
        (HostCuda(fails="cuInit", code=100), 1, {"ok": False, "busy": False, "stage": "cuInit"}),
        (HostCuda(fails="cuDevicePrimaryCtxRetain", code=46), 3, {"ok": False, "busy": True}),
        (HostCuda(fails="cuCtxSynchronize"), 1, {"stage": "cuCtxSynchronize"}),
    ],
    ids=["works", "no driver", "exclusive mode", "the first failure is told, not that of the cleaning up"],
)
def test_the_program_answers_in_json(
    cuda: HostCuda, code: int, said: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(program, "Cuda", lambda _library: cuda)
    assert main(["GPU-1"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert said.items() <= answer.items()


def test_a_missing_library_is_told(capsys: Any) -> None:
    assert main(["GPU-1", "--library", "/nowhere/libcuda.so.1"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["stage"], "/nowhere/libcuda.so.1 cannot be loaded" in answer["message"]) == ("load", True)


def test_the_compiler_beside_the_library_is_loaded_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver in a place of its own, such as a driver container's, is not where the loader would look for it."""
    loaded: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", loaded.append)
    compiler, library = tmp_path / "libnvidia-ptxjitcompiler.so.1", tmp_path / "libcuda.so.580.159.04"
    compiler.touch()
    Cuda(str(library))
    Cuda("libcuda.so.1")
    assert loaded == [str(compiler), str(library), "libcuda.so.1"]


def test_a_library_without_a_call_is_an_old_driver() -> None:
    with pytest.raises(CudaFailure, match="too old"):
        Cuda("libc.so.6").call("cuInit", 0)


def test_equal_arrays_are_equal_and_others_name_the_first_difference() -> None:
    check(array("f", [1, 2]), array("f", [1, 2]))
    with pytest.raises(CudaFailure, match=r"element 1 of the result is 3.0, not 2.0"):
        check(array("f", [1, 3, 9]), array("f", [1, 2, 2]))
