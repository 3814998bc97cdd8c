"""Output of the command: a symbol with a meaning, aligned columns, the next command to type."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import click

from gpu_control_plane.agent.runtimes.interface import RuntimeReport

OK: Final = ("✓", "green")
BAD: Final = ("✗", "red")
ATTENTION: Final = ("!", "yellow")
PLAIN: Final = ("·", "bright_black")

type Symbol = tuple[str, str]
type Row = tuple[Symbol, str, str]


def report_rows(report: RuntimeReport, edited: Sequence[Path], *, restart_due: bool) -> tuple[Row, ...]:
    """A runtime as it is configured, line by line."""
    return (
        (OK if report.cdi else BAD, "devices by CDI", "yes" if report.cdi else "no"),
        (PLAIN, "CDI folders", _listed(report.spec_dirs)),
        (PLAIN, "runtimes below", _listed(report.handlers)),
        (PLAIN, "changed by us", _listed(map(str, edited))),
        (ATTENTION if restart_due else OK, "restart", "due" if restart_due else "not due"),
    )


def title(report: RuntimeReport, config: Path) -> str:
    version = f" {report.version}" if report.version else ""
    return f"{report.name}{version}, configured in {config}"


def show(rows: Iterable[Row]) -> None:
    lines = list(rows)
    width = max(len(name) for _, name, _ in lines)
    for symbol, name, value in lines:
        say(symbol, f"{name:<{width}}   {value}", indent=2)


def say(symbol: Symbol, text: str, *, indent: int = 0) -> None:
    click.echo(f"{' ' * indent}{click.style(symbol[0], fg=symbol[1])} {text}")


def _listed(items: Iterable[str]) -> str:
    return ", ".join(items) or "none"
