"""`kubectl gpu pods`: which pods hold cards and whether they compute, and which wait and why."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.listing import Listing, watch_option
from gpu_control_plane.cli.output import Column, Table, age, counts, output_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.views.fleet import Fleet
    from gpu_control_plane.views.pods import PodRow

_EXAMPLES = """\b
Examples:
  kubectl gpu pods                                 those of my namespace
  kubectl gpu pods -A                              those of every namespace
  kubectl gpu pods -A --idle                       that hold cards and do nothing with them
  kubectl gpu pods -A --waiting                    that get no card, with the reason
  kubectl gpu pods -A -o json | jq '.items[] | select(.reason == "NoFreeUnit")'

\b
Exit codes:
  0  shown, also if there is none
  1  no answer
  5  shown in part: something may not be read
"""


@click.command("pods", short_help="Pods that hold cards, and pods that wait for one.", epilog=_EXAMPLES)
@click.option("--idle", is_flag=True, help="Only pods whose cards do nothing.")
@click.option("--waiting", is_flag=True, help="Only pods that get no card.")
@watch_option
@output_option
@connected(namespace="Whose pods.", all_namespaces=True)
def command(*, idle: bool, waiting: bool, watch: bool, output: str, connection: Connection) -> None:
    """Pods that hold cards, and whether they compute; pods that wait for one, and why in one word.

    Who holds a card is what the agents of the nodes report. `kubectl gpu explain pod NAME` says more about one that
    waits: what would help, and who is ahead.
    """
    from gpu_control_plane.views.pods import Hold, pod_rows  # noqa: PLC0415
    from gpu_control_plane.views.reading import Part  # noqa: PLC0415

    if idle and waiting:
        raise click.UsageError("A pod that waits holds no card: leave --idle or --waiting out.")

    async def work(client: "Client") -> int:
        namespace = connection.namespace_in(client)

        def rows(fleet: "Fleet") -> "Sequence[PodRow]":
            found = pod_rows(fleet, namespace=namespace)
            if idle:
                return [row for row in found if row.load == "HeldIdle"]
            return [row for row in found if row.status is Hold.WAITS] if waiting else found

        listing: Listing[PodRow] = Listing(
            table=pod_table(everywhere=namespace is None),
            parts=tuple(Part),
            rows=rows,
            key=lambda row: f"{row.namespace}/{row.name}",
            empty=lambda _fleet: _nothing(namespace, idle=idle, waiting=waiting),
            namespace=namespace,
        )
        return await listing.show(client, output, watch=watch)

    click.get_current_context().exit(connection.run(work))


def pod_table(*, everywhere: bool) -> "Table[PodRow]":
    now = datetime.now(UTC)
    namespace: Column[PodRow] = Column(title="NAMESPACE", value=lambda row: row.namespace, wide=not everywhere)
    return Table(
        columns=[
            *([namespace] if everywhere else []),
            Column(title="NAME", value=lambda row: row.name),
            Column(title="UNITS", value=lambda row: row.units),
            Column(title="POOL", value=lambda row: " ".join(row.pools)),
            Column(title="STATUS", value=lambda row: row.status, colour=_colour),
            Column(title="WHAT", value=lambda row: row.load or row.reason, text=lambda row: _what(row, now)),
            Column(title="NODE", value=lambda row: row.node, optional=True),
            *([] if everywhere else [namespace]),
            Column(title="RESOURCES", value=lambda row: counts(row.resources), wide=True),
            Column(title="CARDS", value=lambda row: " ".join(row.cards), wide=True),
            Column(title="MESSAGE", value=lambda row: row.message, wide=True),
        ],
        name=lambda row: f"pod/{row.name}",
    )


def _what(row: "PodRow", now: datetime) -> str:
    if row.load is not None:
        since = f" {age(row.idle_since, now)}" if row.idle_since is not None else ""
        return "not measured" if row.load == "Held" else f"{row.load}{since}"
    since = f" {age(row.created, now)}" if row.created is not None else ""
    return f"{row.reason or 'reason not readable'}{since}"


def _colour(row: "PodRow") -> str | None:
    return "yellow" if row.status == "Waits" or row.load == "HeldIdle" else None


def _nothing(namespace: str | None, *, idle: bool, waiting: bool) -> str:
    where = f"in the namespace {namespace}" if namespace is not None else "in any namespace"
    other = "kubectl gpu pods -A" if namespace is not None else "kubectl gpu pools"
    if idle:
        return f"No pod {where} holds a card idle.  Next: {other}"
    if waiting:
        return f"No pod {where} waits for a card.  Next: {other}"
    return f"No pod {where} holds a card or waits for one.  Next: {other}"
