"""Runs a small kernel on one card and checks every element of its result: `python -m …validator.cuda <card>`.

A process of its own, which a crash or a hang of the driver may take down with nobody hurt, and whose end leaves no
CUDA context on the card. It needs nothing but Python and the driver: the kernel is PTX, compiled by the driver for
whatever card it finds. The answer is one line of JSON on standard output.
"""

import argparse
import ctypes
import json
import os
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

LIBRARY: Final = "libcuda.so.1"
_COMPILER: Final = "libnvidia-ptxjitcompiler.so.*"
ELEMENTS: Final = 1 << 18
_BLOCK: Final = 256
_FACTOR: Final = 3.0

_BUSY_CODES: Final = frozenset({46})
"""CUDA_ERROR_DEVICE_UNAVAILABLE: the card is in exclusive mode and somebody has it."""

PTX: Final = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry saxpy(.param .u64 xs, .param .u64 ys, .param .f32 factor, .param .u32 count)
{
    .reg .pred %beyond;
    .reg .b32 %block, %size, %thread, %index, %count;
    .reg .f32 %x, %y, %factor;
    .reg .b64 %xs, %ys, %offset, %here, %there;
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %index, %block, %size, %thread;
    ld.param.u32 %count, [count];
    setp.ge.u32 %beyond, %index, %count;
    @%beyond bra done;
    ld.param.u64 %xs, [xs];
    ld.param.u64 %ys, [ys];
    ld.param.f32 %factor, [factor];
    cvta.to.global.u64 %xs, %xs;
    cvta.to.global.u64 %ys, %ys;
    mul.wide.u32 %offset, %index, 4;
    add.u64 %here, %xs, %offset;
    add.u64 %there, %ys, %offset;
    ld.global.f32 %x, [%here];
    ld.global.f32 %y, [%there];
    fma.rn.f32 %y, %factor, %x, %y;
    st.global.f32 [%there], %y;
done:
    ret;
}
\0"""


class CudaFailure(Exception):
    """A call of the driver failed, or the kernel's result is wrong."""

    def __init__(self, stage: str, message: str, *, busy: bool = False) -> None:
        super().__init__(message)
        self.stage = stage
        self.busy = busy


class Cuda:
    """The driver's own API, each call checked."""

    def __init__(self, library: str) -> None:
        try:
            # The driver asks for its compiler by name, and where the loader does not look for libraries it would not be
            # found, although it lies beside the library. What is loaded already is taken.
            self._compilers = [ctypes.CDLL(str(path)) for path in _compilers(Path(library))]
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise CudaFailure("load", f"{library} cannot be loaded ({error})") from error

    def call(self, name: str, *arguments: Any) -> None:
        code = self._function(name)(*arguments)
        if code:
            message = f"{name} answered {code}, {self._name_of(code)}"
            raise CudaFailure(name, message, busy=code in _BUSY_CODES)

    def _function(self, name: str) -> Callable[..., int]:
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise CudaFailure(name, f"the driver is too old: its library has no {name}") from error
        function.restype = ctypes.c_int
        return function  # type: ignore[no-any-return] # a foreign function

    def _name_of(self, code: int) -> str:
        name = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(name))
        return name.value.decode() if name.value else "an unknown error"


def _compilers(library: Path) -> list[Path]:
    """The compiler of PTX that belongs to a library with a known place."""
    return sorted(library.parent.glob(_COMPILER))[:1] if library.is_absolute() else []


def run(card: str, cuda: Cuda) -> dict[str, object]:
    """Run the kernel on the card with this UUID (of a card or a MIG instance) or PCI address; raises CudaFailure."""
    started = time.perf_counter()
    by_uuid = card.startswith(("GPU-", "MIG-"))
    if by_uuid:
        os.environ["CUDA_VISIBLE_DEVICES"] = card  # no other card is even opened
    else:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    cuda.call("cuInit", 0)
    device, version = ctypes.c_int(), ctypes.c_int()
    cuda.call("cuDriverGetVersion", ctypes.byref(version))
    if by_uuid:
        cuda.call("cuDeviceGet", ctypes.byref(device), 0)
    else:
        cuda.call("cuDeviceGetByPCIBusId", ctypes.byref(device), card.encode())
    name = ctypes.create_string_buffer(128)
    cuda.call("cuDeviceGetName", name, len(name), device)
    with _context(cuda, device):
        ready = time.perf_counter()
        seconds = _saxpy(cuda)
    return {
        "ok": True,
        "card": card,
        "name": name.value.decode(errors="replace"),
        "cudaVersion": f"{version.value // 1000}.{version.value % 1000 // 10}",
        "elements": ELEMENTS,
        "contextSeconds": round(ready - started, 4),
        "kernelSeconds": round(seconds, 6),
    }


@contextmanager
def _context(cuda: Cuda, device: ctypes.c_int) -> Iterator[None]:
    """The card's primary context, whose calls kept their shape from the first CUDA to the latest."""
    context = ctypes.c_void_p()
    cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        cuda.call("cuCtxSetCurrent", context)
        yield
    finally:
        cuda.call("cuDevicePrimaryCtxRelease_v2", device)


def _saxpy(cuda: Cuda) -> float:
    """Compute y = 3x + y and check it; how long launch and kernel took. The numbers are whole, so floats are exact."""
    xs = array("f", range(ELEMENTS))
    ys = array("f", (2 * index + 1 for index in range(ELEMENTS)))
    expected = array("f", (_FACTOR * x + y for x, y in zip(xs, ys, strict=True)))
    size = ELEMENTS * xs.itemsize
    with ExitStack() as cleanup:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        cuda.call("cuModuleLoadData", ctypes.byref(module), PTX)
        cleanup.callback(cuda.call, "cuModuleUnload", module)
        cuda.call("cuModuleGetFunction", ctypes.byref(function), module, b"saxpy")
        addresses = []
        for values in (xs, ys):
            address = ctypes.c_uint64()
            cuda.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
            cleanup.callback(cuda.call, "cuMemFree_v2", address)
            cuda.call("cuMemcpyHtoD_v2", address, _pointer(values), ctypes.c_size_t(size))
            addresses.append(address)
        arguments: tuple[Any, ...] = (*addresses, ctypes.c_float(_FACTOR), ctypes.c_uint32(ELEMENTS))
        places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
        started = time.perf_counter()
        cuda.call("cuLaunchKernel", function, ELEMENTS // _BLOCK, 1, 1, _BLOCK, 1, 1, 0, None, places, None)
        cuda.call("cuCtxSynchronize")
        seconds = time.perf_counter() - started
        cuda.call("cuMemcpyDtoH_v2", _pointer(ys), addresses[1], ctypes.c_size_t(size))
    check(ys, expected)
    return seconds


def check(found: "array[float]", expected: "array[float]") -> None:
    """Every element must be what it should be."""
    if found == expected:
        return
    pairs = enumerate(zip(found, expected, strict=True))
    place, (got, wanted) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
    raise CudaFailure("result", f"element {place} of the result is {got}, not {wanted}: the card computes wrongly")


def _pointer(values: "array[float]") -> ctypes.c_void_p:
    return ctypes.c_void_p(values.buffer_info()[0])


def _first(failure: CudaFailure) -> CudaFailure:
    """After one failure the driver refuses to clean up as well: the first is the one to tell."""
    while isinstance(failure.__context__, CudaFailure):
        failure = failure.__context__
    return failure


def main(arguments: list[str]) -> int:
    """0: the kernel ran; 1: it did not; 2: wrong usage; 3: the card is busy."""
    parser = argparse.ArgumentParser(prog="python -m gpu_control_plane.agent.validator.cuda", description=__doc__)
    parser.add_argument("card", help="UUID (GPU-… or MIG-…) or PCI address")
    parser.add_argument("--library", default=LIBRARY, help="where libcuda is (default: where the loader finds it)")
    options = parser.parse_args(arguments)
    try:
        answer = run(options.card, Cuda(options.library))
    except CudaFailure as failure:
        first = _first(failure)
        about = {"busy": first.busy, "stage": first.stage, "message": str(first)}
        answer = {"ok": False, "card": options.card, **about}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0 if answer["ok"] else 3 if answer["busy"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
