"""Carries out the few instructions of PTX that our kernels use, one thread after the other.

It proves what a kernel computes. That a driver takes it, only a real card can prove.
"""

import re
import struct
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

_ENTRY = re.compile(
    r"\.visible \.entry (?P<name>\w+)\((?P<parameters>[^)]*)\)\s*\{(?P<body>.*?)^\}", re.DOTALL | re.MULTILINE
)
_GUARD = re.compile(r"@(?P<predicate>%\w+) (?P<rest>.*)")
_BITS = {"u32": 32, "b32": 32, "u64": 64, "b64": 64}


class Kernel:
    """One entry of a program."""

    def __init__(self, program: bytes, name: str) -> None:
        text = re.sub(r"//[^\n]*", "", program.decode().rstrip("\0"))
        found = next(entry for entry in _ENTRY.finditer(text) if entry["name"] == name)
        self.parameters = [words.split()[-1] for words in found["parameters"].split(",")]
        self.labels: dict[str, int] = {}
        self.code: list[str] = []
        for line in (line.strip() for line in found["body"].splitlines()):
            if line.endswith(":"):
                self.labels[line[:-1]] = len(self.code)
            elif line and not line.startswith(".reg"):
                assert line.endswith(";"), line
                self.code.append(line[:-1])

    def run(self, blocks: int, threads: int, memory: dict[int, int], **arguments: int) -> None:
        """`memory` holds words of 64 bits by their addresses."""
        assert list(arguments) == self.parameters
        for block in range(blocks):
            for thread in range(threads):
                special = {"%ctaid.x": block, "%ntid.x": threads, "%tid.x": thread, "%nctaid.x": blocks}
                _Thread(self, memory, arguments, special).run()


class _Thread:
    def __init__(
        self, kernel: Kernel, memory: dict[int, int], arguments: Mapping[str, int], special: Mapping[str, int]
    ) -> None:
        self.kernel, self.memory, self.arguments = kernel, memory, arguments
        self.values: dict[str, Any] = dict(special)

    def run(self) -> None:
        place = 0
        while True:
            line = self.kernel.code[place]
            place += 1
            if guard := _GUARD.fullmatch(line):
                if not self.values[guard["predicate"]]:
                    continue
                line = guard["rest"]
            operation, _, rest = line.partition(" ")
            if operation == "ret":
                return
            if operation == "bra":
                place = self.kernel.labels[rest]
            else:
                self.step(operation.split("."), _operands(rest))

    def step(self, operation: list[str], operands: list[str]) -> None:
        match operation:
            case ["ld", "param", _]:
                self.values[operands[0]] = self.arguments[operands[1].strip("[]")]
            case ["ld", *_, "u64"]:
                self.values[operands[0]] = self.memory[self.address(operands[1])]
            case ["st", "global", kind]:
                value = self.value(operands[1])
                self.memory[self.address(operands[0])] = _bits64(value) if kind == "f64" else value
            case ["red", "global", how, _]:
                place, value = self.address(operands[0]), self.value(operands[1])
                held = self.memory[place]
                self.memory[place] = {"add": held + value, "min": min(held, value), "or": held | value}[how]
            case _:
                self.values[operands[0]] = self.compute(operation, operands[1:])

    def compute(self, operation: list[str], operands: list[str]) -> Any:  # noqa: PLR0911 - one for each instruction
        values = [self.value(operand) for operand in operands]
        match operation:
            case ["mov", kind] if isinstance(values[0], float):
                return _bits32(values[0]) if kind == "b32" else _bits64(values[0])
            case ["mov" | "cvta", *_]:
                return values[0]
            case ["cvt", "rn", *_]:
                return float(values[0])
            case ["cvt", to, _]:
                return _cut(values[0], to)
            case ["setp", how, _]:
                return values[0] >= values[1] if how == "ge" else values[0] == values[1]
            case ["mul", "wide", _]:
                return values[0] * values[1]
            case ["mad", "lo", kind]:
                return _cut(values[0] * values[1] + values[2], kind)
            case [*_, ("f32" | "f64") as kind]:
                return _float(operation[0], [Fraction(value) for value in values], kind)
            case [name, kind]:
                found = {"add": sum(values), "and": values[0] & values[-1], "xor": values[0] ^ values[-1]}
                return _cut(values[0] << values[1] if name == "shl" else found[name], kind)
        raise AssertionError(operation)

    def value(self, operand: str) -> Any:
        if operand.startswith("{"):
            low, high = (self.value(each.strip()) for each in operand.strip("{}").split(","))
            return low | high << 32
        if operand.startswith("0f"):
            return struct.unpack(">f", bytes.fromhex(operand[2:]))[0]
        if operand.startswith("0d"):
            return struct.unpack(">d", bytes.fromhex(operand[2:]))[0]
        return self.values[operand] if operand.startswith("%") else int(operand)

    def address(self, operand: str) -> int:
        register, _, offset = operand.strip("[]").partition("+")
        return int(self.values[register]) + int(offset or 0)


def _operands(text: str) -> list[str]:
    return [each.strip() for each in re.split(r",(?![^{]*\})", text)]


def _cut(value: int, kind: str) -> int:
    return value & ((1 << _BITS[kind]) - 1)


def _float(name: str, values: list[Fraction], kind: str) -> float:
    one, two, three = (*values, Fraction(0), Fraction(0))[:3]
    exact = {"sub": one - two, "mul": one * two, "neg": -one, "fma": one * two + three}[name]
    value = float(exact)
    return float(struct.unpack("<f", struct.pack("<f", value))[0]) if kind == "f32" else value


def _bits32(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def _bits64(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])
