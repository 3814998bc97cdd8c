"""What the card is made to do, and what should come out: kernels in PTX, and their arithmetic in Python.

Memory: every word of 64 bits is written and read back by a rule that knows its number, so a word that changed and one
that was written to another's place are both found. Computing: every block of threads works through the same
unforgiving arithmetic, in which one wrong bit changes everything after it, so results can be compared between the
card's processors, between repetitions, and, for a short run, with what Python works out.
"""

import ctypes
import struct
from array import array
from fractions import Fraction
from typing import Final, NamedTuple

THREADS: Final = 256
"""Threads of a block: the results of a block are as many pairs of words."""
WORD: Final = 8
_ALL: Final = (1 << 64) - 1
_ODD: Final = 0x9E3779B97F4A7C15
"""Odd, so that no two of its multiples are equal: each word holds a number of its own."""

_START: Final = """
    // Which of all threads this one is, and how many there are.
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mov.u32 %blocks, %nctaid.x;
    mul.wide.u32 %index, %block, %size;
    cvt.u64.u32 %offset, %thread;
    add.u64 %index, %index, %offset;
    mul.wide.u32 %step, %blocks, %size;
    ld.param.u64 %words, [words];
    ld.param.u64 %count, [count];
    ld.param.u64 %one, [one];
    ld.param.u64 %shift, [shift];
    ld.param.u64 %factor, [factor];
    ld.param.u64 %base, [base];
    cvta.to.global.u64 %words, %words;
again:
    setp.ge.u64 %beyond, %index, %count;
    @%beyond bra done;
    // What belongs into the word with this number: a walking bit, a multiple of the number, a constant, added up.
    add.u64 %offset, %index, %shift;
    cvt.u32.u64 %place, %offset;
    and.b32 %place, %place, 63;
    shl.b64 %word, %one, %place;
    mad.lo.u64 %word, %index, %factor, %word;
    add.u64 %word, %word, %base;
    shl.b64 %offset, %index, 3;
    add.u64 %here, %words, %offset;
"""
_RULE: Final = "    .param .u64 words, .param .u64 count, .param .u64 one, .param .u64 shift, .param .u64 factor,"
_REGISTERS: Final = """
    .reg .b32 %block, %size, %thread, %blocks, %place;
    .reg .b64 %index, %step, %offset, %words, %count, %one, %shift, %factor, %base, %word, %here;
"""

PTX: Final = (
    f"""
.version 6.0
.target sm_70
.address_size 64

// Writes every word.
.visible .entry fill(
{_RULE} .param .u64 base)
{{
    .reg .pred %beyond;
{_REGISTERS}{_START}
    st.global.u64 [%here], %word;
    add.u64 %index, %index, %step;
    bra again;
done:
    ret;
}}

// Reads every word back. Findings: how many were wrong, the lowest number of one, and which of their bits.
.visible .entry verify(
{_RULE} .param .u64 base, .param .u64 findings)
{{
    .reg .pred %beyond, %right;
    .reg .b64 %found, %bits, %findings;
{_REGISTERS}
    ld.param.u64 %findings, [findings];
    cvta.to.global.u64 %findings, %findings;
{_START}
    ld.volatile.global.u64 %found, [%here];
    xor.b64 %bits, %found, %word;
    setp.eq.u64 %right, %bits, 0;
    @%right bra next;
    red.global.add.u64 [%findings], 1;
    red.global.min.u64 [%findings+8], %index;
    red.global.or.b64 [%findings+16], %bits;
next:
    add.u64 %index, %index, %step;
    bra again;
done:
    ret;
}}

// Computes with whole numbers, single and double precision at once, from the number of the thread in its block.
.visible .entry churn(.param .u64 results, .param .u32 rounds)
{{
    .reg .pred %finished;
    .reg .b32 %block, %size, %thread, %round, %rounds, %whole, %bits;
    .reg .f32 %single, %rest;
    .reg .f64 %double, %product;
    .reg .b64 %results, %here, %offset, %pair;
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    ld.param.u32 %rounds, [rounds];
    ld.param.u64 %results, [results];
    cvta.to.global.u64 %results, %results;
    // Sixteen bytes of results for each thread.
    mad.lo.u32 %bits, %block, %size, %thread;
    mul.wide.u32 %offset, %bits, 16;
    add.u64 %here, %results, %offset;
    // Both fractions begin with (thread + 1) / 512, which both precisions hold exactly.
    add.u32 %whole, %thread, 1;
    cvt.rn.f32.u32 %single, %whole;
    mul.rn.f32 %single, %single, 0f3B000000;
    cvt.rn.f64.u32 %double, %whole;
    mul.rn.f64 %double, %double, 0d3F60000000000000;
    mov.u32 %round, 0;
step:
    setp.ge.u32 %finished, %round, %rounds;
    @%finished bra write;
    mad.lo.u32 %whole, %whole, 1664525, 1013904223;
    // x becomes 3.9 x (1 - x): chaos, which forgets no error.
    sub.rn.f32 %rest, 0f3F800000, %single;
    mul.rn.f32 %single, %single, %rest;
    mul.rn.f32 %single, %single, 0f4079999A;
    neg.f64 %product, %double;
    fma.rn.f64 %product, %product, %double, %double;
    mul.rn.f64 %double, %product, 0d400F333333333333;
    add.u32 %round, %round, 1;
    bra step;
write:
    mov.b32 %bits, %single;
    mov.b64 %pair, {{%bits, %whole}};
    st.global.u64 [%here], %pair;
    st.global.f64 [%here+8], %double;
    ret;
}}
""".encode("ascii")
    + b"\0"
)


class Pattern(NamedTuple):
    """A rule for the word with each number: (one << ((number + shift) mod 64)) + number * factor + base."""

    name: str
    one: int = 0
    shift: int = 0
    factor: int = 0
    base: int = 0

    def word(self, number: int) -> int:
        walking = self.one << ((number + self.shift) % 64)
        return (walking + number * self.factor + self.base) & _ALL

    @property
    def arguments(self) -> tuple[ctypes.c_uint64, ...]:
        """As the kernels take it."""
        return tuple(ctypes.c_uint64(value) for value in (self.one, self.shift, self.factor, self.base))


def patterns(turn: int) -> tuple[Pattern, ...]:
    """What is written in one turn, one after the other; the bits that walk stand elsewhere in every turn."""
    return (
        Pattern("zeros"),
        Pattern("ones", base=_ALL),
        Pattern("alternating bits", base=0xAAAAAAAAAAAAAAAA),
        Pattern("alternating bits, turned round", base=0x5555555555555555),
        Pattern("a walking one", one=1, shift=turn),
        Pattern("a walking zero", one=_ALL, shift=turn, base=_ALL),
        Pattern("the number of each word", factor=_ODD, base=turn * _ODD & _ALL),
        Pattern("the number of each word, turned round", factor=-_ODD & _ALL, base=~(turn * _ODD) & _ALL),
    )


def churned(rounds: int) -> "array[int]":
    """What a block of `churn` must come to, worked out here: IEEE 754 leaves no choice."""
    results = array("Q")
    for thread in range(THREADS):
        whole, single, double = thread + 1, (thread + 1) / 512, (thread + 1) / 512
        for _ in range(rounds):
            whole = (whole * 1664525 + 1013904223) & 0xFFFFFFFF
            # An operation on single precision in double, rounded once more, is exact: 53 bits are enough for 24.
            single = _single(_single(single * _single(1.0 - single)) * _single(3.9))
            exact = Fraction(double)
            double = float(exact - exact * exact) * 3.9
        results.append(whole << 32 | struct.unpack("<I", struct.pack("<f", single))[0])
        results.append(struct.unpack("<Q", struct.pack("<d", double))[0])
    return results


def _single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
