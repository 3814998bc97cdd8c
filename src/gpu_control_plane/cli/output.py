"""Rows for people and for programs, from one description of the columns: `-o table|wide|json|yaml|name|csv`.

Tables are plain text: 40,000 rows are joined in a fraction of a second. What is told beside the rows goes to standard
error, so that the output can be piped. Programs get every field of a row, whatever the columns show.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click

from gpu_control_plane.kube.sentences import one_line

if TYPE_CHECKING:
    from datetime import datetime

    from gpu_control_plane.views.fleet import Missing

FORMATS = ("table", "wide", "json", "yaml", "name", "csv")
NOTHING = "-"
_GAP = "  "
_MIN_COLUMN_WIDTH = 12
"""Columns to which a text is shortened at most."""

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="wide has more columns; json and yaml have everything.",
)


@dataclass(frozen=True, kw_only=True)
class Column[Row]:
    """A column: what programs read in it, and how people do."""

    title: str
    value: Callable[[Row], str | int | float | None]
    text: Callable[[Row], str] | None = None
    """For people, where it is not the value: an age instead of a time."""
    wide: bool = False
    """Only with `-o wide`, and in CSV."""
    optional: bool = False
    """Left out where the terminal is too narrow."""
    shortened: bool = False
    """Cut with an ellipsis where the terminal is too narrow: a sentence, not a name that people copy."""
    summed: bool = False
    """Whether the last row has its sum."""
    colour: Callable[[Row], str | None] | None = None

    def shown(self, row: Row) -> str:
        value = self.text(row) if self.text is not None else self.value(row)
        shown = NOTHING if value is None or value == "" else str(value)
        return shown if shown.isprintable() else one_line(shown)


@dataclass(frozen=True, kw_only=True)
class Table[Row]:
    """What the rows of a kind look like."""

    columns: Sequence[Column[Row]]
    name: Callable[[Row], str]
    """For `-o name`, as kubectl takes it: `gpudevice.gpu.deckhouse.io/node-1-0000-18-00-0`."""
    total: bool = False
    """Whether a last row has the sums."""

    def show(
        self, rows: Sequence[Row], output: str, *, missing: Sequence["Missing"] = (), stream: TextIO | None = None
    ) -> None:
        """Print the rows. `missing` is what they had to be made without, for the formats that say everything."""
        stream = stream or sys.stdout
        match output:
            case "json" | "yaml":
                show_document({"items": rows, "missing": missing}, output, stream)
            case "name":
                stream.write("".join(f"{self.name(row)}\n" for row in rows))
            case "csv":
                self._csv(rows, stream)
            case _:
                stream.write(
                    self.text(rows, wide=output == "wide", width=terminal_width(stream), colour=has_colours(stream))
                )

    def text(self, rows: Sequence[Row], *, wide: bool = False, width: int | None = None, colour: bool = False) -> str:
        """The table as text of at most `width` columns, as far as names allow."""
        layout = self.layout(rows, wide=wide, width=width)
        return layout.header(colour=colour) + layout.lines(rows, colour=colour) + layout.total_row(rows)

    def layout(self, rows: Sequence[Row], *, wide: bool = False, width: int | None = None) -> "Layout[Row]":
        """The columns to show, and how wide each is for these rows."""
        shown = [column for column in self.columns if wide or not column.wide]
        widths = [_widest(column, rows, self.total) for column in shown]
        if width is not None and not wide:
            for number in [number for number, column in enumerate(shown) if column.optional][::-1]:
                if _sum(widths) > width:
                    del shown[number], widths[number]
        if width is not None:
            for number, column in enumerate(shown):
                if column.shortened and (over := _sum(widths) - width) > 0:
                    widths[number] = max(_MIN_COLUMN_WIDTH, widths[number] - over)
        return Layout(columns=shown, widths=widths, total=self.total)

    def _csv(self, rows: Sequence[Row], stream: TextIO) -> None:
        import csv  # noqa: PLC0415

        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([column.title.lower().replace(" ", "_") for column in self.columns])
        writer.writerows([column.value(row) for column in self.columns] for row in rows)


@dataclass(frozen=True, kw_only=True)
class Layout[Row]:
    """Columns with their widths: rows that come later, of a watch, fit below the first."""

    columns: Sequence[Column[Row]]
    widths: Sequence[int]
    total: bool = False

    def header(self, *, colour: bool = False) -> str:
        line = self._line([column.title for column in self.columns])
        return f"{click.style(line, fg='bright_black') if colour else line}\n"

    def lines(self, rows: Iterable[Row], *, colour: bool = False) -> str:
        columns = self.columns
        if not colour:
            return "".join(f"{self._line([column.shown(row) for column in columns])}\n" for row in rows)
        return "".join(
            f"{self._line([column.shown(row) for column in columns], [_colour(column, row) for column in columns])}\n"
            for row in rows
        )

    def total_row(self, rows: Sequence[Row]) -> str:
        if not self.total or len(rows) < 2:  # noqa: PLR2004 - the sum of one row is that row
            return ""
        cells = [_summed(column, rows) if column.summed else "" for column in self.columns]
        return f"{self._line(['TOTAL', *cells[1:]])}\n"

    def _line(self, cells: Sequence[str], colours: Sequence[str | None] = ()) -> str:
        fitted = [_fitted(cell, width) for cell, width in zip(cells, self.widths, strict=True)]
        if any(colours):
            painted = zip(fitted, colours, strict=True)
            fitted = [click.style(cell, fg=colour) if colour else cell for cell, colour in painted]
        return _GAP.join(fitted).rstrip()


def show_document(content: object, output: str, stream: TextIO | None = None) -> None:
    """Structs as JSON or YAML, whole."""
    import msgspec  # noqa: PLC0415

    stream = stream or sys.stdout
    if output == "yaml":
        import yaml  # noqa: PLC0415

        dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        yaml.dump(msgspec.to_builtins(content), stream, Dumper=dumper, sort_keys=False, allow_unicode=True)
    else:
        stream.write(msgspec.json.format(msgspec.json.encode(content), indent=2).decode())
        stream.write("\n")


def age(moment: "datetime | None", now: "datetime") -> str:
    """How long ago in one unit, as kubectl has it: 45s, 12m, 3h, 5d."""
    if moment is None:
        return NOTHING
    seconds = max(int((now - moment).total_seconds()), 0)
    for unit, size, until in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def counts(numbers: Mapping[str, int]) -> str:
    """Numbers by name in one cell: `training=8 inference=2`."""
    return " ".join(f"{name}={number}" for name, number in numbers.items())


def say(text: str) -> None:
    """Words for the person at the terminal, beside the output."""
    click.echo(text, err=True)


def tell_missing(missing: Sequence["Missing"]) -> int:
    """Say what the answer was made without; the exit code."""
    from gpu_control_plane.cli.exit_codes import ExitCode  # noqa: PLC0415

    for each in missing:
        say(f"! without {each.kind}: {each.why}")
    return ExitCode.PARTIAL if missing else ExitCode.OK


def _widest[Row](column: Column[Row], rows: Sequence[Row], total: bool) -> int:
    widest = max(map(len, map(column.shown, rows)), default=0)
    summed = len(_summed(column, rows)) if total and column.summed else 0
    return max(len(column.title), widest, summed)


def _summed[Row](column: Column[Row], rows: Sequence[Row]) -> str:
    """The sum as text; nothing where no row has a value, which is not 0."""
    values = [value for row in rows if isinstance(value := column.value(row), int | float)]
    total = sum(values)
    return "" if not values else f"{total:,.1f}" if isinstance(total, float) else str(total)


def _sum(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _fitted(cell: str, width: int) -> str:
    return f"{cell:<{width}}" if len(cell) <= width else f"{cell[: width - 1]}…"


def _colour[Row](column: Column[Row], row: Row) -> str | None:
    return column.colour(row) if column.colour is not None else None


def terminal_width(stream: TextIO) -> int | None:
    """Columns of the terminal; None where the output is read by a program."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def has_colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
