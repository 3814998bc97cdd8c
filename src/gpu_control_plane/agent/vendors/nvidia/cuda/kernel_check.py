"""Runs a small kernel on one card and checks every element of its result: `python -m …nvidia.cuda.kernel_check <card>`.

It is a process of its own: a crash or a hang of the driver does not affect the agent, and when it ends, no CUDA context
is left on the card. The answer is one line of JSON on standard output.
"""

import argparse
import ctypes
import json
import sys
import time
from array import array
from contextlib import ExitStack
from typing import Final

from gpu_control_plane.agent.vendors.nvidia.cuda.libcuda import (
    LIBRARY,
    Cuda,
    CudaFailure,
    allocated,
    fetch,
    first,
    launch,
    loaded,
    opened,
    send,
)

ELEMENTS: Final = 1 << 18
_BLOCK: Final = 256
_FACTOR: Final = 3.0

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


def run(card: str, cuda: Cuda) -> dict[str, object]:
    """Run the kernel on the card with this UUID (of a card or a MIG instance) or PCI address; raises CudaFailure."""
    started = time.perf_counter()
    with opened(cuda, card) as about:
        ready = time.perf_counter()
        seconds = _saxpy(cuda)
    return {
        "ok": True,
        "card": card,
        "name": about.name,
        "cudaVersion": about.cuda_version,
        "elements": ELEMENTS,
        "contextSeconds": round(ready - started, 4),
        "kernelSeconds": round(seconds, 6),
    }


def _saxpy(cuda: Cuda) -> float:
    """Compute y = 3x + y and check it; returns how long launch and kernel took. With whole numbers floats are exact."""
    xs = array("f", range(ELEMENTS))
    ys = array("f", (2 * index + 1 for index in range(ELEMENTS)))
    expected = array("f", (_FACTOR * x + y for x, y in zip(xs, ys, strict=True)))
    with ExitStack() as cleanup:
        (function,) = loaded(cuda, cleanup, PTX, b"saxpy")
        addresses = []
        for values in (xs, ys):
            addresses.append(allocated(cuda, cleanup, ELEMENTS * values.itemsize))
            send(cuda, addresses[-1], values)
        started = time.perf_counter()
        factor, count = ctypes.c_float(_FACTOR), ctypes.c_uint32(ELEMENTS)
        launch(cuda, function, ELEMENTS // _BLOCK, _BLOCK, *addresses, factor, count)
        seconds = time.perf_counter() - started
        fetch(cuda, ys, addresses[1])
    check(ys, expected)
    return seconds


def check(found: "array[float]", expected: "array[float]") -> None:
    """Every element must be what it should be."""
    if found == expected:
        return
    pairs = enumerate(zip(found, expected, strict=True))
    place, (got, wanted) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
    raise CudaFailure("result", f"element {place} of the result is {got}, not {wanted}: the card computes wrongly")


def main(arguments: list[str]) -> int:
    """0: the kernel ran; 1: it did not; 2: wrong usage; 3: the card is busy."""
    parser = argparse.ArgumentParser(
        prog="python -m gpu_control_plane.agent.vendors.nvidia.cuda.kernel_check", description=__doc__
    )
    parser.add_argument("card", help="UUID (GPU-… or MIG-…) or PCI address")
    parser.add_argument("--library", default=LIBRARY, help="where libcuda is (default: where the loader finds it)")
    options = parser.parse_args(arguments)
    try:
        answer = run(options.card, Cuda(options.library))
    except CudaFailure as failure:
        failed = first(failure)
        about = {"busy": failed.busy, "stage": failed.stage, "message": str(failed)}
        answer = {"ok": False, "card": options.card, **about}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0 if answer["ok"] else 3 if answer["busy"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
