"""What a benchmark found: a table for people, and the same as JSON under `build/bench/`."""

import sys
from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path("build/bench")


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One number with what it is measured against. `aim` is a sentence, `met` says whether it holds."""

    name: str
    value: float
    unit: str
    aim: str
    met: bool
    raw: dict[str, Any] = {}


def at_most(name: str, value: float, unit: str, limit: float, **raw: object) -> Measurement:
    return Measurement(name=name, value=value, unit=unit, aim=f"at most {limit:g}", met=value <= limit, raw=raw)


def at_least(name: str, value: float, unit: str, limit: float, **raw: object) -> Measurement:
    return Measurement(name=name, value=value, unit=unit, aim=f"at least {limit:g}", met=value >= limit, raw=raw)


def publish(benchmark: str, measurements: list[Measurement]) -> bool:
    """Write the JSON and show the table; returns whether every aim was met."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{benchmark}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(measurements)) + b"\n")
    print(table(measurements))
    print(f"written to {path}")
    return all(found.met for found in measurements)


def table(measurements: list[Measurement]) -> str:
    rows = [
        ("", "measurement", "value", "aim"),
        *(
            ("✓" if found.met else "✗", found.name, f"{found.value:,.2f} {found.unit}".rstrip(), found.aim)
            for found in measurements
        ),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
