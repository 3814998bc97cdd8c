"""`kubectl gpu status`: what needs you in the fleet, and what is free; with `--local`, the local cluster itself."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.exit_codes import ExitCode
from gpu_control_plane.cli.options import cluster_name
from gpu_control_plane.cli.output import Column, Table, show_document, tell_missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_control_plane.cli.screen import Screen
    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.local.status import ClusterStatus
    from gpu_control_plane.views.overview import ModelRow, Overview
    from gpu_control_plane.views.pools import PoolRow

_EXAMPLES = """\b
Examples:
  kubectl gpu status                      what needs you, and what is free
  kubectl gpu status -o json | jq -r '.todo[].command'
  kubectl gpu status --local              the local cluster: its components, nodes and address
  kubectl gpu status --local -o json | jq .state

\b
Exit codes:
  0  nothing needs you
  1  no answer
  3  there is no cluster; with --local also: it is stopped
  4  something needs you; with --local: a component is down or still starting
  5  shown in part: something may not be read
"""


@click.command("status", short_help="What needs you in the fleet, and what is free.", epilog=_EXAMPLES)
@click.option("--local", is_flag=True, help="The local cluster itself, rather than the fleet in it.")
@cluster_name
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@connected()
def command(*, local: bool, name: str, output: str, connection: Connection) -> None:
    """The fleet of the cluster that the kubeconfig names: what needs you, how many cards of each model are free, and
    how the pools fare. The local cluster is one line of it.

    Without a kubeconfig it is about the local cluster.
    """
    context = click.get_current_context()
    if local or context.get_parameter_source("name") is click.core.ParameterSource.COMMANDLINE:
        context.exit(_show_local(name, output))
    chosen = _choose(connection, name)
    context.exit(_show_local(name, output) if chosen is None else _show_fleet(chosen, name, output))


def _choose(connection: Connection, name: str) -> Connection | None:
    """The cluster of the kubeconfig; without one the local cluster, if it runs; None if there is no cluster to ask."""
    from gpu_control_plane.kube.config import load_config  # noqa: PLC0415
    from gpu_control_plane.kube.errors import NoKubeconfig  # noqa: PLC0415

    if connection != Connection():
        return connection
    try:
        load_config()
    except NoKubeconfig:
        status = _local_status(name)
        return Connection(kubeconfig=Path(status.kubeconfig or "")) if status.state.alive else None
    return connection


def _show_fleet(connection: Connection, name: str, output: str) -> int:
    from gpu_control_plane.views.overview import overview  # noqa: PLC0415
    from gpu_control_plane.views.reading import read_fleet  # noqa: PLC0415

    async def read(client: "Client") -> "tuple[str, Overview]":
        return client.config.server, overview(await read_fleet(client))

    server, found = connection.run(read)
    local = _local_status(name)
    if output == "table":
        show_overview(server, found, local)
    else:
        import msgspec  # noqa: PLC0415

        document = {"server": server, **msgspec.to_builtins(found), "local": {"name": name, "state": local.state}}
        show_document(document, output)
    partial = tell_missing([each for each in found.missing if each.installed])
    return partial or (ExitCode.FINDINGS if any(todo.urgent for todo in found.todo) else ExitCode.OK)


def show_overview(server: str, found: "Overview", local: "ClusterStatus | None" = None) -> None:
    """What needs a person, then the figures."""
    from gpu_control_plane.cli.screen import ATTENTION, OK, Screen  # noqa: PLC0415

    screen = Screen(sys.stdout)
    screen.line(screen.style(f"Fleet of {server}", bold=True))
    for line in _figures(found):
        screen.line(f"  {line}")
    screen.line()
    if not found.todo:
        screen.mark(OK, "Nothing that you may see needs you." if found.missing else "Nothing needs you.")
    for todo in found.todo:
        screen.mark(ATTENTION if todo.urgent else ("·", "bright_black"), _capital(todo.sentence))
        screen.line(f"    {screen.style(todo.command, fg='cyan')}")
    for table, rows in ((_models(), found.models), (_pools(), found.pools)):
        if rows:
            screen.line()
            _indented(screen, table, rows)
    if local is not None and local.server is not None:
        screen.line()
        more = screen.style("kubectl gpu status --local", fg="cyan")
        screen.line(f"  Local cluster {local.name}: {local.state}   {more}")


def _figures(found: "Overview") -> "Iterator[str]":
    """How many there are; of what may not be read, nothing."""
    from gpu_control_plane.kube.sentences import counted  # noqa: PLC0415

    missing = {each.kind.split(".")[0] for each in found.missing}
    if "gpunodestates" not in missing:
        yield f"{counted(found.nodes, 'node')}, {found.nodes_ready} ready"
    if "gpudevices" not in missing:
        yield f"{counted(found.cards, 'card')}{_loads(found)}"
        yield f"{counted(found.pods_holding, 'pod')} {'holds' if found.pods_holding == 1 else 'hold'} cards"
    if "pods" not in missing and found.pods_waiting:
        yield f"{counted(found.pods_waiting, 'pod')} {'waits' if found.pods_waiting == 1 else 'wait'} for cards"


def _loads(found: "Overview") -> str:
    words = {"HeldIdle": "held idle", "OutOfService": "out of service", "Held": "held, not measured"}
    parts = [f"{count:,} {words.get(load, load.lower())}" for load, count in found.loads.items()]
    return f": {', '.join(parts)}" if parts else ""


def _models() -> "Table[ModelRow]":
    return Table(
        columns=[
            Column(title="MODEL", value=lambda row: row.model.removeprefix("NVIDIA ")),
            Column(title="CARDS", value=lambda row: row.total, summed=True),
            Column(title="COMPUTING", value=lambda row: row.computing, summed=True),
            Column(title="HELD IDLE", value=lambda row: row.held_idle, summed=True),
            Column(title="FREE", value=lambda row: row.free, summed=True),
            Column(title="OUT OF SERVICE", value=lambda row: row.out_of_service, summed=True),
        ],
        name=lambda row: row.model,
        total=True,
    )


def _pools() -> "Table[PoolRow]":
    return Table(
        columns=[
            Column(title="POOL", value=lambda row: row.name),
            Column(title="PHASE", value=lambda row: row.phase),
            Column(title="TOTAL", value=lambda row: row.total),
            Column(title="USED", value=lambda row: row.used),
            Column(title="HELD IDLE", value=lambda row: row.held_idle),
            Column(title="FREE", value=lambda row: row.free),
            Column(title="FAULTED", value=lambda row: row.faulted),
        ],
        name=lambda row: row.name,
    )


def _indented(screen: "Screen", table: "Table[Any]", rows: "tuple[Any, ...]") -> None:
    header, *lines = table.text(rows).splitlines()
    screen.line(f"  {screen.style(header, fg='bright_black')}")
    for line in lines:
        screen.line(f"  {line}")


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _show_local(name: str, output: str) -> int:
    from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415
    from gpu_control_plane.cli.summary import show_summary  # noqa: PLC0415
    from gpu_control_plane.local.status import ClusterState  # noqa: PLC0415

    status = _local_status(name)
    if output == "table":
        show_summary(Screen(sys.stdout), status)
    else:
        show_document(status, output)
    if not status.state.alive:
        return ExitCode.ABSENT
    return ExitCode.OK if status.state is ClusterState.RUNNING else ExitCode.FINDINGS


def _local_status(name: str) -> "ClusterStatus":
    from gpu_control_plane.local.status import cluster_status  # noqa: PLC0415

    return cluster_status(name)
