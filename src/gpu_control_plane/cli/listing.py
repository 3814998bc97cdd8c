"""What every listing command does: read the fleet, show rows, say what is missing, and go on with `--watch`.

A watch prints rows again when they change, as `kubectl get --watch` does: it waits for events, and asks for nothing.
"""

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gpu_control_plane.cli.output import Layout, Table, has_colours, say, tell_missing, terminal_width

if TYPE_CHECKING:
    from gpu_control_plane.kube.client import Client, Selection
    from gpu_control_plane.views.fleet import Fleet
    from gpu_control_plane.views.reading import Part

watch_option = click.option("-w", "--watch", is_flag=True, help="Go on, and print rows again when they change.")


@dataclass(frozen=True, kw_only=True)
class Listing[Row]:
    """A command's rows."""

    table: Table[Row]
    parts: "Collection[Part]"
    rows: "Callable[[Fleet], Sequence[Row]]"
    key: Callable[[Row], str]
    """By which a row is known again when it changes."""
    empty: "Callable[[Fleet], str]"
    """Why there is no row, and what to type next."""
    cards: "Selection | None" = None
    namespace: str | None = None
    printed: bool = False
    """Whether the columns that the API server prints of cards are enough for a table."""

    async def show(self, client: "Client", output: str, *, watch: bool) -> int:
        """Print the rows, for ever with `watch`; the exit code."""
        from gpu_control_plane.kube.client import EVERYTHING  # noqa: PLC0415

        wanted: dict[str, Any] = {"cards": self.cards or EVERYTHING, "namespace": self.namespace}
        if watch:
            from gpu_control_plane.views.following import follow_fleet  # noqa: PLC0415

            await follow_fleet(client, _Changes(self, output).show, self.parts, **wanted)
        from gpu_control_plane.views.reading import read_fleet  # noqa: PLC0415

        printed = self.printed and output in ("table", "name")
        return self._show_once(await read_fleet(client, self.parts, **wanted, printed=printed), output)

    def _show_once(self, fleet: "Fleet", output: str) -> int:
        rows = self.rows(fleet)
        if not rows and not fleet.missing:
            say(self.empty(fleet))
        if rows or output in ("json", "yaml", "csv"):
            self.table.show(rows, output, missing=fleet.missing)
        return tell_missing(fleet.missing)


class _Changes[Row]:
    """Prints the rows that are not as they were when last printed."""

    def __init__(self, listing: Listing[Row], output: str) -> None:
        if output not in ("table", "wide", "json", "name"):
            raise click.UsageError(f"--watch prints table, wide, json or name, and not {output}.")
        self._listing = listing
        self._output = output
        self._shown: dict[str, Row] | None = None
        self._layout: Layout[Row] | None = None

    def show(self, fleet: "Fleet") -> None:
        rows = {self._listing.key(row): row for row in self._listing.rows(fleet)}
        if self._shown is None:
            tell_missing(fleet.missing)
        before = self._shown or {}
        changed = [row for key, row in rows.items() if before.get(key) != row]
        for gone in sorted(before.keys() - rows.keys()):
            say(f"{gone} is gone")
        self._shown = rows
        if changed:
            sys.stdout.write(self._text(changed))
            sys.stdout.flush()

    def _text(self, rows: Sequence[Row]) -> str:
        if self._output == "json":
            import msgspec  # noqa: PLC0415

            return "".join(f"{msgspec.json.encode(row).decode()}\n" for row in rows)
        if self._output == "name":
            return "".join(f"{self._listing.table.name(row)}\n" for row in rows)
        colour, header = has_colours(sys.stdout), ""
        if self._layout is None:
            wide = self._output == "wide"
            self._layout = self._listing.table.layout(rows, wide=wide, width=terminal_width(sys.stdout))
            header = self._layout.header(colour=colour)
        return header + self._layout.lines(rows, colour=colour)
