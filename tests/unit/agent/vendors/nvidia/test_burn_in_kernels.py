"""The kernels do what the Python beside them says, whatever the size, and the patterns are what their names say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.agent.vendors.nvidia.cuda.burn_in_kernels import PTX, THREADS, WORD, Pattern, churned, patterns
from unit.agent.vendors.nvidia.ptx import Kernel

ALL = (1 << 64) - 1
FILL, VERIFY, CHURN = (Kernel(PTX, name) for name in ("fill", "verify", "churn"))
COUNT = 150
FINDINGS = 1 << 30
turns = st.integers(0, 1 << 20)


def rule(pattern: Pattern) -> dict[str, int]:
    return {"one": pattern.one, "shift": pattern.shift, "factor": pattern.factor, "base": pattern.base}


@pytest.mark.parametrize("number", range(len(patterns(0))))
@given(turn=turns, broken=st.dictionaries(st.integers(0, COUNT - 1), st.integers(1, ALL), max_size=3))
@settings(max_examples=10, deadline=None)
def test_every_word_is_written_and_every_wrong_one_found(number: int, turn: int, broken: dict[int, int]) -> None:
    pattern = patterns(turn)[number]
    memory: dict[int, int] = {}
    FILL.run(2, 8, memory, words=0, count=COUNT, **rule(pattern))
    assert memory == {index * WORD: pattern.word(index) for index in range(COUNT)}
    for index, bits in broken.items():
        memory[index * WORD] ^= bits
    memory |= {FINDINGS: 0, FINDINGS + 8: ALL, FINDINGS + 16: 0}
    VERIFY.run(2, 8, memory, words=0, count=COUNT, **rule(pattern), findings=FINDINGS)
    mask = 0
    for bits in broken.values():
        mask |= bits
    found = tuple(memory[FINDINGS + place] for place in (0, 8, 16))
    assert found == (len(broken), min(broken, default=ALL), mask)


def test_the_computation_comes_to_what_is_worked_out_on_every_processor() -> None:
    memory: dict[int, int] = {}
    CHURN.run(2, THREADS, memory, results=0, rounds=6)
    block = [memory[place * WORD] for place in range(THREADS * 2)]
    assert block == churned(6).tolist()
    assert [memory[(THREADS * 2 + place) * WORD] for place in range(THREADS * 2)] == block


def test_no_two_threads_compute_the_same() -> None:
    results = churned(6)
    assert len({*zip(results[::2], results[1::2], strict=True)}) == THREADS


@given(turn=turns, number=st.integers(0, 1 << 34))
def test_every_pattern_comes_with_its_opposite_so_every_bit_is_both(turn: int, number: int) -> None:
    words = [pattern.word(number) for pattern in patterns(turn)]
    assert all(one ^ other == ALL for one, other in zip(words[::2], words[1::2], strict=True))


@given(turn=turns, one=st.integers(0, 1 << 34), other=st.integers(0, 1 << 34))
def test_a_word_written_to_another_place_is_noticed(turn: int, one: int, other: int) -> None:
    numbered = patterns(turn)[6]
    assert (numbered.word(one) == numbered.word(other)) is (one == other)


def test_a_bit_walks_through_all_places() -> None:
    assert {patterns(3)[4].word(number) for number in range(64)} == {1 << place for place in range(64)}
