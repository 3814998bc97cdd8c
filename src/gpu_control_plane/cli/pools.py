"""`kubectl gpu pools`: what the pools have, and how much of it you can get now."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.listing import Listing, watch_option
from gpu_control_plane.cli.output import NOTHING, Column, Table, age, output_option, say, tell_missing

if TYPE_CHECKING:
    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.views.pools import PoolRow

_EXAMPLES = """\b
Examples:
  kubectl gpu pools                                what is free, and what my namespace can get
  kubectl gpu pools -n team-a                      what team-a can get
  kubectl gpu pools -A                             without anybody's quota
  kubectl gpu pools -o wide                        with cards held idle, nodes, resources
  kubectl gpu pools -o json | jq '.items[] | {name, free, obtainable}'

\b
Exit codes:
  0  shown, also if there is none
  1  no answer
  5  shown in part: something may not be read
"""


@click.command("pools", short_help="The pools: used, free, and what you can get now.", epilog=_EXAMPLES)
@watch_option
@output_option
@connected(namespace="Whose quota and access count.", all_namespaces=True)
def command(*, watch: bool, output: str, connection: Connection) -> None:
    """The pools: what they have, what is free, and how much of it a namespace can get now.

    YOU GET is what is free and within the quotas of the namespace; 0 where the pool does not admit it. A pod's service
    account may be admitted all the same, and all units of a pod have to be free on one node.
    """
    from gpu_control_plane.views.pools import pool_rows  # noqa: PLC0415
    from gpu_control_plane.views.reading import Part  # noqa: PLC0415
    from gpu_control_plane.views.tenants import read_tenant  # noqa: PLC0415

    loads = output not in ("table", "name")

    async def work(client: "Client") -> int:
        namespace = connection.namespace_in(client)
        tenant, missing = await read_tenant(client, namespace) if namespace is not None else (None, ())
        listing: Listing[PoolRow] = Listing(
            table=pool_table(namespace is not None),
            parts=(Part.POOLS, Part.CARDS) if loads else (Part.POOLS,),
            rows=lambda fleet: pool_rows(fleet, tenant, loads=loads),
            key=lambda row: row.name,
            empty=lambda _fleet: (
                "There is no pool.  Next: kubectl explain gpupool.spec, and docs/pools.md has some to paste"
            ),
        )
        if namespace is not None and output in ("table", "wide"):
            say(f"YOU GET is what is free, within the quotas of the namespace {namespace}.")
        code = await listing.show(client, output, watch=watch)
        return tell_missing(missing) or code

    click.get_current_context().exit(connection.run(work))


def pool_table(for_a_namespace: bool) -> "Table[PoolRow]":
    now = datetime.now(UTC)
    columns: list[Column[PoolRow]] = [
        Column(title="NAME", value=lambda row: row.name),
        Column(title="PHASE", value=lambda row: row.phase, colour=_colour),
        Column(title="MODE", value=lambda row: row.allocation, optional=True),
        Column(title="TOTAL", value=lambda row: row.total, summed=True),
        Column(title="USED", value=lambda row: row.used, summed=True),
        Column(title="FREE", value=lambda row: row.free, summed=True),
        Column(title="FAULTED", value=lambda row: row.faulted, summed=True),
    ]
    if for_a_namespace:
        columns.append(Column(title="YOU GET", value=lambda row: row.obtainable, text=_obtainable, summed=True))
    return Table(
        columns=[
            *columns,
            Column(title="RESERVED", value=lambda row: row.reserved, wide=True, summed=True),
            Column(title="COMPUTING", value=lambda row: row.computing, wide=True, summed=True),
            Column(title="HELD IDLE", value=lambda row: row.held_idle, wide=True, summed=True),
            Column(
                title="NODES",
                value=lambda row: row.nodes,
                text=lambda row: f"{row.nodes_ready}/{row.nodes}",
                wide=True,
            ),
            Column(title="RESOURCES", value=lambda row: " ".join(each.name for each in row.resources), wide=True),
            Column(
                title="AGE",
                value=lambda row: row.created.isoformat() if row.created else None,
                text=lambda row: age(row.created, now),
                wide=True,
            ),
            Column(title="MESSAGE", value=lambda row: row.message, wide=True),
        ],
        name=lambda row: f"gpupool.gpu.deckhouse.io/{row.name}",
        total=True,
    )


def _obtainable(row: "PoolRow") -> str:
    """The number, and what keeps it below what is free."""
    found = [each.obtainable for each in row.resources if each.obtainable is not None]
    if not found:
        return NOTHING
    if not any(each.access for each in found):
        return "0 (no access)"
    limited = any(each.quota_left is not None and each.units == each.quota_left for each in found)
    return f"{row.obtainable}{' (quota)' if limited and (row.obtainable or 0) < row.free else ''}"


def _colour(row: "PoolRow") -> str | None:
    return {"Ready": None, "Misconfigured": "red"}.get(str(row.phase), "yellow")
