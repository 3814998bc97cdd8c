"""The program with a driver made of host memory: what it finds, what it gives back, what it says.

What the kernels compute is proven beside; that the driver takes them, only a real card can prove.
"""

import ctypes
import json
from collections.abc import Callable
from typing import Any

import pytest

from gpu_control_plane.agent.vendors.nvidia.cuda import burn_in
from gpu_control_plane.agent.vendors.nvidia.cuda.burn_in import burn, main
from gpu_control_plane.agent.vendors.nvidia.cuda.burn_in_kernels import PTX, WORD, Pattern, churned
from gpu_control_plane.agent.vendors.nvidia.cuda.libcuda import Cuda, CudaFailure

FREE = 1 << 13
PROCESSORS = 2
RIGHT: list[Any] = churned(burn_in._CHECKED_ROUNDS).tolist()


class HostCard(Cuda):
    """Does on the processor what the card would. `spoil` may change a word of memory after it was written."""

    def __init__(
        self,
        *,
        spoil: Callable[[int, int], int] = lambda _number, word: word,
        wrong_block: int | None = None,
        wrong_from: int = 0,
        scarce: int = 0,
        fails: dict[str, int] | None = None,
    ) -> None:
        self.held: set[object] = set()
        self.launches: list[bytes] = []
        self._spoil, self._wrong_block, self._wrong_from = spoil, wrong_block, wrong_from
        self._scarce, self._fails = scarce, fails or {}
        self._memory: dict[int, Any] = {}
        self._names: dict[int, bytes] = {}
        self._computed = 0

    def call(self, name: str, *arguments: Any) -> None:
        if code := self._fails.get(name):
            raise CudaFailure(name, f"{name} answered {code}", busy=code == 46, code=code)
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

    def _cuModuleGetFunction(self, function: Any, _module: Any, name: bytes) -> None:  # noqa: N802
        function._obj.value = len(self._names) + 1
        self._names[function._obj.value] = name

    def _cuDeviceGetAttribute(self, value: Any, *_arguments: Any) -> None:  # noqa: N802
        value._obj.value = PROCESSORS

    def _cuMemGetInfo_v2(self, free: Any, total: Any) -> None:  # noqa: N802
        free._obj.value, total._obj.value = FREE, FREE * 2

    def _cuMemAlloc_v2(self, address: Any, size: ctypes.c_size_t) -> None:  # noqa: N802
        if self._scarce and FREE // 3 < size.value <= FREE:
            self._scarce -= 1
            raise CudaFailure("cuMemAlloc_v2", "out of memory", code=2)
        memory = ctypes.create_string_buffer(size.value)
        address._obj.value = ctypes.addressof(memory)
        self._memory[address._obj.value] = memory
        self.held.add(address._obj.value)

    def _cuMemFree_v2(self, address: ctypes.c_uint64) -> None:  # noqa: N802
        self.held.remove(address.value)

    def _cuMemcpyHtoD_v2(self, there: ctypes.c_uint64, here: Any, size: ctypes.c_size_t) -> None:  # noqa: N802
        ctypes.memmove(there.value or 0, here, size.value)

    def _cuMemcpyDtoH_v2(self, here: Any, there: ctypes.c_uint64, size: ctypes.c_size_t) -> None:  # noqa: N802
        ctypes.memmove(here, there.value or 0, size.value)

    def _cuLaunchKernel(self, function: ctypes.c_void_p, *rest: Any) -> None:  # noqa: N802
        blocks, places = rest[0], rest[8]
        name = self._names[function.value or 0]
        self.launches.append(name)
        values = [
            ctypes.c_uint64.from_address(place).value for place in places[: len(places) if name != b"churn" else 1]
        ]
        if name == b"churn":
            self._churn(values[0], ctypes.c_uint32.from_address(places[1]).value, blocks)
            return
        pattern = Pattern("any", *values[2:6])
        words = (ctypes.c_uint64 * values[1]).from_address(values[0])
        if name == b"fill":
            words[:] = [self._spoil(number, pattern.word(number)) for number in range(values[1])]
            return
        wrong = {
            number: word ^ pattern.word(number) for number, word in enumerate(words) if word != pattern.word(number)
        }
        findings = (ctypes.c_uint64 * 3).from_address(values[6])
        findings[0] += len(wrong)
        findings[1] = min((findings[1], *wrong))
        for bits in wrong.values():
            findings[2] |= bits

    def _churn(self, results: int, rounds: int, blocks: int) -> None:
        block = RIGHT if rounds == burn_in._CHECKED_ROUNDS else [~word & (1 << 64) - 1 for word in RIGHT]
        found = (ctypes.c_uint64 * (len(block) * blocks)).from_address(results)
        found[:] = [*block] * blocks
        self._computed += 1
        if self._wrong_block is not None and self._computed > self._wrong_from:
            found[self._wrong_block * len(block)] ^= 1 << 52


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_CACHE_DISABLE"):
        monkeypatch.setenv(name, "before")
    monkeypatch.setattr(burn_in, "_COMPUTE_SECONDS", 0.0)


def bad(number: int, bits: int) -> Callable[[int, int], int]:
    return lambda at, word: word ^ bits if at == number else word


def test_a_good_card_passes_and_nothing_is_left_on_it() -> None:
    card = HostCard()
    answer = burn("GPU-1", card, 0.0)
    assert (answer["ok"], answer["turns"]) == (True, 1)
    assert card.held == set()
    assert card.launches.count(b"fill") == card.launches.count(b"verify") == 8
    assert card.launches.count(b"churn") == 1 + 8


def test_it_goes_on_turn_by_turn_until_its_time_is_over() -> None:
    times = iter(range(100))
    assert burn("GPU-1", HostCard(), 2.0, lambda: next(times))["turns"] == 2


@pytest.mark.parametrize(
    ("card", "stage", "said"),
    [
        (HostCard(spoil=bad(5, 1 << 7)), "memory", r"^1 of 942 words did not keep zeros: .* byte 0x28 .* 0x0+80$"),
        (HostCard(spoil=lambda _at, word: word | 4), "memory", r"942 of 942 words did not keep zeros"),
        (HostCard(spoil=lambda _at, word: word & ~4), "memory", r"did not keep ones"),
        (HostCard(spoil=lambda at, word: word if at != 9 else word & 0xFFFFFFFF), "memory", r"did not keep ones"),
        (HostCard(wrong_block=0), "compute", r"1 of \d+ results differ from the result worked out beforehand"),
        (HostCard(wrong_block=3, wrong_from=1), "compute", "differ from that of another processor, in 1 of 16 blocks"),
        (HostCard(wrong_block=3, wrong_from=4), "compute", "differ from that of a run before, in 1 of 16 blocks"),
        (HostCard(fails={"cuCtxSynchronize": 719}), "cuCtxSynchronize", "answered 719"),
    ],
    ids=["a bit", "stuck at one", "stuck at zero", "half a word", "always wrong", "a processor", "once", "a crash"],
)
def test_whatever_is_wrong_is_found_and_the_card_given_back(card: HostCard, stage: str, said: str) -> None:
    with pytest.raises(CudaFailure, match=said) as failure:
        burn("GPU-1", card, 0.0)
    assert failure.value.stage == stage
    assert card.held == set()


def test_words_that_are_written_to_another_place_are_found() -> None:
    """An address line that is broken: the upper half of the memory is the lower half."""
    half = int(FREE * 0.92) // WORD // 2
    numbers: list[int] = []

    def mirrored(number: int, word: int) -> int:
        numbers.append(word)
        return numbers[len(numbers) - 1 - half] if number >= half else word

    with pytest.raises(CudaFailure, match=r"the number of each word|a walking"):
        burn("GPU-1", HostCard(spoil=mirrored), 0.0)


def test_less_memory_is_taken_where_the_driver_gives_no_more() -> None:
    burn("GPU-1", HostCard(scarce=2), 0.0)
    with pytest.raises(CudaFailure, match="out of memory"):
        burn("GPU-1", HostCard(scarce=9), 0.0)


@pytest.mark.parametrize(
    ("card", "code", "said"),
    [
        (HostCard(), 0, {"ok": True, "turns": 1}),
        (HostCard(spoil=bad(0, 1)), 1, {"ok": False, "busy": False, "stage": "memory"}),
        (HostCard(wrong_block=0), 1, {"ok": False, "stage": "compute"}),
        (HostCard(fails={"cuCtxSynchronize": 214}), 1, {"ok": False, "stage": "memory"}),
        (HostCard(fails={"cuDevicePrimaryCtxRetain": 46}), 3, {"ok": False, "busy": True}),
        (HostCard(fails={"cuInit": 100}), 1, {"ok": False, "busy": False, "stage": "cuInit"}),
    ],
    ids=["good", "bad memory", "bad processor", "the driver saw bad memory", "exclusive mode", "no driver"],
)
def test_the_program_answers_in_json(
    card: HostCard, code: int, said: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(burn_in, "Cuda", lambda _library: card)
    assert main(["GPU-1", "--seconds", "0", "--alone"]) == code
    assert said.items() <= json.loads(capsys.readouterr().out).items()
