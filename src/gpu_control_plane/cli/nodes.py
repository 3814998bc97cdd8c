"""`kubectl gpu nodes`: the GPU nodes, whether they serve pods, and what is free on them."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.listing import Listing, watch_option
from gpu_control_plane.cli.output import Column, Table, age, counts, output_option

if TYPE_CHECKING:
    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.views.nodes import NodeRow

_EXAMPLES = """\b
Examples:
  kubectl gpu nodes                                what each has, and what is free
  kubectl gpu nodes -o wide                        with software, pools and what is wrong
  kubectl gpu nodes --watch
  kubectl gpu nodes -o json | jq '.items[] | select(.free >= 4) | .name'

\b
Exit codes:
  0  shown, also if there is none
  1  no answer
  5  shown in part: something may not be read
"""
_FINE = frozenset({"Ready", "Cordoned", "NotManaged"})


@click.command("nodes", short_help="The GPU nodes: state, used, free, driver.", epilog=_EXAMPLES)
@watch_option
@output_option
@connected()
def command(*, watch: bool, output: str, connection: Connection) -> None:
    """The GPU nodes: whether their cards are offered to pods, how many units are used and free, and their driver.

    STATE is Ready, or in one word what is wrong; `kubectl gpu explain node NAME` has the sentence.
    """
    from gpu_control_plane.views.nodes import node_rows  # noqa: PLC0415
    from gpu_control_plane.views.reading import Part  # noqa: PLC0415

    listing: Listing[NodeRow] = Listing(
        table=node_table(),
        parts=(Part.STATES, Part.NODES),
        rows=node_rows,
        key=lambda row: row.name,
        empty=lambda _fleet: (
            "There is no GPU node.  Next: kubectl get nodes -L gpu.deckhouse.io/gpu.present\n"
            "to see where cards were found, and kubectl gpu doctor"
        ),
    )

    async def work(client: "Client") -> int:
        return await listing.show(client, output, watch=watch)

    click.get_current_context().exit(connection.run(work))


def node_table() -> "Table[NodeRow]":
    now = datetime.now(UTC)
    return Table(
        columns=[
            Column(title="NAME", value=lambda row: row.name),
            Column(
                title="STATE", value=lambda row: row.state, colour=lambda row: None if row.state in _FINE else "yellow"
            ),
            Column(title="CARDS", value=lambda row: row.cards, summed=True),
            Column(title="USED", value=lambda row: row.used, summed=True),
            Column(title="FREE", value=lambda row: row.free, summed=True),
            Column(title="PENDING", value=lambda row: row.pending, summed=True),
            Column(title="MODEL", value=lambda row: ", ".join(row.models), text=_models),
            Column(title="DRIVER", value=lambda row: row.driver, optional=True),
            Column(title="UPGRADE", value=lambda row: row.upgrade, wide=True),
            Column(title="CUDA", value=lambda row: row.cuda, wide=True),
            Column(title="INJECTION", value=lambda row: row.injection, wide=True),
            Column(title="POOLS", value=lambda row: counts(row.pools), wide=True),
            Column(title="UNHEALTHY", value=lambda row: row.unhealthy, wide=True, summed=True),
            Column(
                title="AGE",
                value=lambda row: row.created.isoformat() if row.created else None,
                text=lambda row: age(row.created, now),
                wide=True,
            ),
            Column(title="MESSAGE", value=lambda row: row.message, wide=True),
        ],
        name=lambda row: f"gpunodestate.gpu.deckhouse.io/{row.name}",
        total=True,
    )


def _models(row: "NodeRow") -> str:
    """Without the vendor: most fleets have one."""
    return ", ".join(model.removeprefix("NVIDIA ") for model in row.models)
