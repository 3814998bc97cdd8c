"""`kubectl gpu ray`: Ray clusters, jobs and services, the cards they hold, and what they wait for."""

from typing import TYPE_CHECKING

import click
import msgspec

from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.output import Column, Table, output_option, say, tell_missing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.kube.objects import Object
    from gpu_control_plane.views.fleet import Missing
    from gpu_control_plane.views.ray import RayRow, RayUserRow

_EXAMPLES = """\b
Examples:
  kubectl gpu ray                           those of my namespace
  kubectl gpu ray -A                        those of every namespace
  kubectl gpu ray -A --waiting              that wait, with the reason and the next command
  kubectl gpu ray -A -o json | jq '.items[] | select(.cards > 0)'

\b
Exit codes:
  0  shown, also if there is none
  1  no answer
  5  shown in part: something may not be read
"""


class Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A row of the table. Fields are added, never renamed or removed."""

    kind: str
    namespace: str
    name: str
    state: str
    workers: str
    cards: int
    idle: int
    waiting: int
    why: str
    next: str


@click.command("ray", short_help="Ray clusters, jobs and services, and what they wait for.", epilog=_EXAMPLES)
@click.option("--waiting", is_flag=True, help="Only those that wait for something.")
@output_option
@connected(namespace="Whose Ray.", all_namespaces=True)
def command(*, waiting: bool, output: str, connection: Connection) -> None:
    """Ray clusters, jobs and services: the cards that their pods hold, and what they wait for.

    It reads what KubeRay's operator or ours reports, whichever looks after Ray here.
    """

    async def work(client: "Client") -> int:
        namespace = connection.namespace_in(client)
        lines, missing = await _lines(client, namespace)
        shown = [line for line in lines if line.why or line.waiting] if waiting else lines
        if not shown and not missing:
            say(_nothing(namespace, waiting=waiting))
        if shown or output in ("json", "yaml", "csv"):
            ray_table(everywhere=namespace is None).show(shown, output, missing=missing)
        for follow in dict.fromkeys(line.next for line in shown if line.next and output == "table"):
            say(f"Next: {follow}")
        return tell_missing(missing)

    click.get_current_context().exit(connection.run(work))


def ray_table(*, everywhere: bool) -> "Table[Line]":
    namespace: Column[Line] = Column(title="NAMESPACE", value=lambda row: row.namespace, wide=not everywhere)
    return Table(
        columns=[
            *([namespace] if everywhere else []),
            Column(title="KIND", value=lambda row: row.kind),
            Column(title="NAME", value=lambda row: row.name),
            Column(title="STATE", value=lambda row: row.state),
            Column(title="WORKERS", value=lambda row: row.workers, optional=True),
            Column(title="CARDS", value=lambda row: row.cards),
            Column(title="IDLE", value=lambda row: row.idle, colour=lambda row: "yellow" if row.idle else None),
            Column(title="WAITING", value=lambda row: row.waiting),
            Column(title="WHY", value=lambda row: row.why, colour=lambda _row: "yellow"),
            *([] if everywhere else [namespace]),
            Column(title="NEXT", value=lambda row: row.next, wide=True),
        ],
        name=lambda row: f"{row.kind.lower()}/{row.name}",
    )


async def _lines(client: "Client", namespace: str | None) -> "tuple[list[Line], tuple[Missing, ...]]":
    import asyncio  # noqa: PLC0415

    from gpu_control_plane.api.ray.view import RayClusterView, RayJobView, RayServiceView  # noqa: PLC0415
    from gpu_control_plane.kube.client import Selection  # noqa: PLC0415
    from gpu_control_plane.views.fleet import Missing  # noqa: PLC0415
    from gpu_control_plane.views.ray import job_rows, ray_rows, service_rows  # noqa: PLC0415
    from gpu_control_plane.views.reading import Part, read_fleet, read_kind  # noqa: PLC0415

    place = Selection(namespace)
    fleet, clusters, jobs, services = await asyncio.gather(
        read_fleet(client, (Part.CARDS, Part.POOLS, Part.WAITING), namespace=namespace),
        read_kind(client, RayClusterView, place),
        read_kind(client, RayJobView, place),
        read_kind(client, RayServiceView, place),
    )
    missing = (*fleet.missing, *(each for each in (clusters, jobs, services) if isinstance(each, Missing)))
    rows = ray_rows(fleet, _found(clusters, RayClusterView))
    users = [*job_rows(_found(jobs, RayJobView), rows), *service_rows(_found(services, RayServiceView), rows)]
    return [*map(_of_cluster, rows), *map(_of_user, users)], missing


def _found[T: "Object"](read: "Iterable[Object] | Missing", kind: type[T]) -> list[T]:
    """What was read of a kind; nothing where it could not be."""
    from gpu_control_plane.views.fleet import Missing  # noqa: PLC0415

    return [] if isinstance(read, Missing) else [each for each in read if isinstance(each, kind)]


def _of_cluster(row: "RayRow") -> Line:
    return Line(
        kind="RayCluster",
        namespace=row.namespace,
        name=row.name,
        state=row.state,
        workers=f"{row.workers}/{row.workers_wanted}",
        cards=len(row.cards),
        idle=row.idle,
        waiting=len(row.waiting),
        why=row.why,
        next=row.next,
    )


def _of_user(row: "RayUserRow") -> Line:
    return Line(
        kind=row.kind,
        namespace=row.namespace,
        name=row.name,
        state=row.state,
        workers="",
        cards=row.cards,
        idle=0,
        waiting=row.waiting,
        why=row.why,
        next=row.next,
    )


def _nothing(namespace: str | None, *, waiting: bool) -> str:
    where = f"in the namespace {namespace}" if namespace is not None else "in any namespace"
    if waiting:
        return f"Nothing of Ray {where} waits.  Next: kubectl gpu ray{' -A' if namespace is not None else ''}"
    return f"There is no Ray {where}.  Next: kubectl gpu {'ray -A' if namespace is not None else 'pools'}"
