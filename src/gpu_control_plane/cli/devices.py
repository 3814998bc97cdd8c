"""`kubectl gpu devices`: the cards, what they do, who holds them, and why some are in no pool."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli import names
from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.listing import Listing, watch_option
from gpu_control_plane.cli.output import Column, Table, age, output_option

if TYPE_CHECKING:
    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.views.cards import CardFilter, CardRow
    from gpu_control_plane.views.fleet import Fleet

_EXAMPLES = """\b
Examples:
  kubectl gpu devices                              every card
  kubectl gpu devices --pending                    those in no pool, and why
  kubectl gpu devices --pool training --state Faulted
  kubectl gpu devices -l gpu.deckhouse.io/product=NVIDIA-H200 -o wide
  kubectl gpu devices -o json | jq '.items[] | select(.load == "HeldIdle") | .name'

\b
Exit codes:
  0  shown, also if there is none
  1  no answer
  5  shown in part: something may not be read
"""
_STATES = ("Unassigned", "Reserved", "Assigned", "Draining", "Faulted")


@click.command("devices", short_help="The cards: state, pool, load, users.", epilog=_EXAMPLES)
@click.option("--pending", is_flag=True, help="Only cards in no pool, with the reason.")
@click.option("--pool", metavar="NAME", shell_complete=names.pools, help="Only cards of this pool.")
@click.option("--node", metavar="NAME", shell_complete=names.nodes, help="Only cards of this node.")
@click.option("--state", type=click.Choice(_STATES, case_sensitive=False), help="Only cards in this state.")
@click.option("-l", "--selector", "labels", metavar="LABELS", help="Only cards with these labels, as kubectl has it.")
@watch_option
@output_option
@connected()
def command(
    *,
    pending: bool,
    pool: str | None,
    node: str | None,
    state: str | None,
    labels: str | None,
    watch: bool,
    output: str,
    connection: Connection,
) -> None:
    """The cards of the cluster: what each is, where it stands, whether it computes, and who holds it.

    LOAD says what a card does: Computing, HeldIdle (a pod has it and does nothing with it), Held (not measured), Free;
    of a card that is in no pool it says why.
    """
    from gpu_control_plane.views.cards import CardFilter, card_rows  # noqa: PLC0415
    from gpu_control_plane.views.reading import Part  # noqa: PLC0415

    if pending and pool:
        raise click.UsageError("A pending card is in no pool: leave --pool out.")
    wanted = CardFilter(pool=pool, node=node, state=state, pending=pending, labels=labels)
    listing: Listing[CardRow] = Listing(
        table=pending_table() if pending else card_table(),
        parts=(Part.CARDS,),
        rows=lambda fleet: card_rows(fleet.cards.values()),
        key=lambda row: row.name,
        empty=lambda fleet: _nothing(fleet, wanted),
        cards=wanted.selection,
        printed=not pending,
    )

    async def work(client: "Client") -> int:
        return await listing.show(client, output, watch=watch)

    click.get_current_context().exit(connection.run(work))


def card_table() -> "Table[CardRow]":
    now = datetime.now(UTC)
    return Table(
        columns=[
            Column(title="NAME", value=lambda row: row.name),
            Column(title="NODE", value=lambda row: row.node, wide=True),
            Column(title="MODEL", value=lambda row: row.product, text=_model),
            Column(title="STATE", value=lambda row: row.state, colour=_colour),
            Column(title="POOL", value=lambda row: row.pool),
            Column(title="LOAD", value=lambda row: row.load, text=_load),
            Column(title="USED BY", value=_users, optional=True),
            Column(title="REASON", value=lambda row: row.reason, wide=True),
            Column(title="HEALTHY", value=lambda row: _yes(row.healthy), wide=True),
            Column(title="MEMORY MIB", value=lambda row: row.memory_mib, wide=True),
            Column(title="UUID", value=lambda row: row.uuid, wide=True),
            Column(title="UTIL %", value=lambda row: row.readings.utilisation if row.readings else None, wide=True),
            Column(title="TEMP C", value=lambda row: row.readings.temperature if row.readings else None, wide=True),
            Column(title="POWER W", value=lambda row: row.readings.power if row.readings else None, wide=True),
            Column(
                title="READ",
                value=lambda row: row.readings.at.isoformat() if row.readings else None,
                text=lambda row: age(row.readings.at if row.readings else None, now),
                wide=True,
            ),
            Column(title="AGE", value=_created, text=lambda row: age(row.created, now), wide=True),
        ],
        name=_name,
    )


def pending_table() -> "Table[CardRow]":
    """Cards in no pool: what they wait for comes first."""
    now = datetime.now(UTC)
    return Table(
        columns=[
            Column(title="NAME", value=lambda row: row.name),
            Column(title="NODE", value=lambda row: row.node, wide=True),
            Column(title="MODEL", value=lambda row: row.product, text=_model, optional=True),
            Column(title="REASON", value=lambda row: row.reason, colour=_colour),
            Column(title="APPROVED FOR", value=lambda row: row.approved_for, wide=True),
            Column(title="AGE", value=_created, text=lambda row: age(row.created, now)),
            Column(title="WHY", value=_why, shortened=True),
        ],
        name=_name,
    )


def _name(row: "CardRow") -> str:
    return f"gpudevice.gpu.deckhouse.io/{row.name}"


def _model(row: "CardRow") -> str:
    """Without the vendor: most fleets have one."""
    return (row.product or "").removeprefix("NVIDIA ")


def _load(row: "CardRow") -> str:
    return row.load if row.pool is not None or row.reason is None else row.reason


def _users(row: "CardRow") -> str:
    if not row.users:
        return ""
    more = len(row.users) - 1
    return f"{row.users[0]}{f' +{more}' if more else ''}"


def _why(row: "CardRow") -> str:
    from gpu_control_plane.pools.pending_reasons import PendingReason  # noqa: PLC0415

    return row.message or row.fault or (PendingReason(row.reason).because if row.reason else "")


def _created(row: "CardRow") -> str | None:
    return row.created.isoformat() if row.created is not None else None


def _yes(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"


def _colour(row: "CardRow") -> str | None:
    match row.state:
        case "Faulted":
            return "red"
        case "Assigned" | "Reserved":
            return None
        case _:
            return "yellow"


def _nothing(fleet: "Fleet", wanted: "CardFilter") -> str:  # noqa: ARG001
    if wanted.pending and not (wanted.node or wanted.state or wanted.labels):
        return "Nothing waits: every card is in a pool.  Next: kubectl gpu devices"
    if wanted.selection.params():
        return "No card matches.  Next: kubectl gpu devices"
    return (
        "There is no card: no GPU node has reported one.  Next: kubectl gpu nodes, and\n"
        "kubectl get nodes -L gpu.deckhouse.io/gpu.present to see where cards were found"
    )
