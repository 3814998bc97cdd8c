"""Burns one card in: `python -m gpu_control_plane.agent.vendors.nvidia.cuda.burn_in <card> --seconds 60`.

In each turn, most of the card's free memory is written and read back with several patterns, and all of its
multiprocessors compute results that are known. The first wrong one ends the test. It is a process of its own: whatever
the card does to it does not affect the agent, and it ends with the agent. The answer is one line of JSON.
"""

import argparse
import ctypes
import json
import sys
import time
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from gpu_control_plane.agent.programs import exit_with_parent
from gpu_control_plane.agent.vendors.nvidia.cuda.burn_in_kernels import PTX, THREADS, WORD, Pattern, churned, patterns
from gpu_control_plane.agent.vendors.nvidia.cuda.libcuda import (
    ECC_UNCORRECTABLE,
    LIBRARY,
    OUT_OF_MEMORY,
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

MEMORY: Final = "memory"
COMPUTE: Final = "compute"

_MEMORY_SHARE: Final = 0.92
"""How much of the free memory is tested: the driver needs some for itself."""
_MIN_MEMORY_SHARE: Final = 0.5
"""A driver that does not give this share of the free memory fails the test."""
_BLOCKS: Final = 8
"""Blocks of threads for each of the card's processors, so that all of them are busy."""
_PROCESSORS: Final = 16
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT."""
_CHECKED_ROUNDS: Final = 24
"""Rounds of the computation whose result Python computes as well."""
_COMPUTE_SECONDS: Final = 0.25
"""How long one computation should take."""
_MOST_ROUNDS: Final = 1 << 24
_MIB: Final = 1 << 20


class CardTest:
    """The card, with the kernels and the memory that the test uses."""

    def __init__(self, cuda: Cuda, cleanup: ExitStack, device: ctypes.c_int) -> None:
        self._cuda = cuda
        processors = ctypes.c_int()
        cuda.call("cuDeviceGetAttribute", ctypes.byref(processors), _PROCESSORS, device)
        self._blocks = processors.value * _BLOCKS
        self._fill, self._verify, self._churn = loaded(cuda, cleanup, PTX, b"fill", b"verify", b"churn")
        self._findings = allocated(cuda, cleanup, 3 * WORD)
        self._results = allocated(cuda, cleanup, self._blocks * THREADS * 2 * WORD)
        self._rounds = 1 << 12
        self._reference: array[int] | None = None
        self._words, self.size = self._memory(cleanup)

    def check_memory(self, pattern: Pattern) -> None:
        """Write the pattern everywhere and read it back."""
        count = ctypes.c_uint64(self.size // WORD)
        findings = array("Q", (0, (1 << 64) - 1, 0))
        send(self._cuda, self._findings, findings)
        launch(self._cuda, self._fill, self._blocks, THREADS, self._words, count, *pattern.arguments)
        launch(self._cuda, self._verify, self._blocks, THREADS, self._words, count, *pattern.arguments, self._findings)
        fetch(self._cuda, findings, self._findings)
        wrong, number, bits = findings
        if wrong:
            raise CudaFailure(
                MEMORY,
                f"{wrong} of {count.value} words did not keep {pattern.name}: the first at byte {number * WORD:#x} of"
                f" the memory tested, wrong bits {bits:#018x}",
            )

    def check_compute(self) -> None:
        """A short computation must have the result that Python computes."""
        self._compare(self._compute(_CHECKED_ROUNDS), churned(_CHECKED_ROUNDS), "the result worked out beforehand")

    def compute(self) -> None:
        """A long computation must have the same result on all multiprocessors, and each time."""
        while self._reference is None:
            started = time.perf_counter()
            results = self._compute(self._rounds)
            if time.perf_counter() - started >= _COMPUTE_SECONDS or self._rounds >= _MOST_ROUNDS:
                self._reference = results[: THREADS * 2]
                self._compare(results, self._reference, "that of another processor")
                return
            self._rounds *= 2
        self._compare(self._compute(self._rounds), self._reference, "that of a run before")

    def _memory(self, cleanup: ExitStack) -> tuple[ctypes.c_uint64, int]:
        """Most of what is free, in one piece; a little less where the driver does not give that much."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        share = _MEMORY_SHARE
        while True:
            size = int(free.value * share) // WORD * WORD
            try:
                return allocated(self._cuda, cleanup, size), size
            except CudaFailure as failure:
                if failure.code != OUT_OF_MEMORY or share < _MIN_MEMORY_SHARE:
                    raise
                share -= 0.1

    def _compute(self, rounds: int) -> "array[int]":
        launch(self._cuda, self._churn, self._blocks, THREADS, self._results, ctypes.c_uint32(rounds))
        results = array("Q", bytes(self._blocks * THREADS * 2 * WORD))
        fetch(self._cuda, results, self._results)
        return results

    def _compare(self, results: "array[int]", block: "array[int]", what: str) -> None:
        expected = block * self._blocks
        if results != expected:
            wrong = [place for place, pair in enumerate(zip(results, expected, strict=True)) if pair[0] != pair[1]]
            blocks = len({place // len(block) for place in wrong})
            raise CudaFailure(
                COMPUTE,
                f"{len(wrong)} of {len(results)} results differ from {what}, in {blocks} of {self._blocks} blocks:"
                " the card computes wrongly",
            )


def burn(card: str, cuda: Cuda, seconds: float, clock: Callable[[], float] = time.monotonic) -> dict[str, object]:
    """Burn in the card with this UUID for so long, one whole turn at least; raises CudaFailure."""
    with opened(cuda, card, asleep=True) as about, ExitStack() as cleanup:
        test = CardTest(cuda, cleanup, about.device)
        end, turns = clock() + seconds, 0
        test.check_compute()
        while turns == 0 or clock() < end:
            for pattern in patterns(turns):
                test.check_memory(pattern)
                test.compute()
            turns += 1
    return {"ok": True, "card": card, "name": about.name, "memoryMiB": test.size // _MIB, "turns": turns}


def main(arguments: list[str]) -> int:
    """0: nothing was found; 1: something was; 2: wrong usage; 3: the card is busy."""
    parser = argparse.ArgumentParser(
        prog="python -m gpu_control_plane.agent.vendors.nvidia.cuda.burn_in", description=__doc__
    )
    parser.add_argument("card", help="UUID (GPU-… or MIG-…) or PCI address")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long (default: 60)")
    parser.add_argument("--library", default=LIBRARY, help="where libcuda is (default: where the loader finds it)")
    parser.add_argument("--alone", action="store_true", help="go on when standard input ends: for use by hand")
    options = parser.parse_args(arguments)
    if not options.alone:
        exit_with_parent()
    try:
        answer = burn(options.card, Cuda(options.library), options.seconds)
    except CudaFailure as failure:
        failed = first(failure)
        stage = MEMORY if failed.code == ECC_UNCORRECTABLE else failed.stage
        answer = {"ok": False, "card": options.card, "busy": failed.busy, "stage": stage, "message": str(failed)}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0 if answer["ok"] else 3 if answer["busy"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
