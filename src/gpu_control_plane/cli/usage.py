"""`kubectl gpu usage`: GPU-hours held, used and wasted, by namespace, pool, owner, model or node."""

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.exit_codes import ExitCode
from gpu_control_plane.cli.output import FORMATS, Column, Table, say, show_document

if TYPE_CHECKING:
    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.usage.hours import UsageRow
    from gpu_control_plane.usage.prometheus import Prometheus
    from gpu_control_plane.usage.reading import Usage

_EXAMPLES = """\b
Examples:
  kubectl gpu usage                                    the last 7 days, by namespace
  kubectl gpu usage --since 30d --by owner
  kubectl gpu usage --by pool                          buy or tidy up?
  kubectl gpu usage --since 30d -o csv > november.csv
  kubectl gpu usage --prometheus http://localhost:9090

\b
Exit codes:
  0  answered, from whatever source: standard error names it
  1  the cluster or Prometheus cannot be reached
  2  wrong usage
  5  you may not read all that the numbers are made of: standard error says what
"""
_BY = ("namespace", "pool", "owner", "model", "node")


class _Span(click.ParamType[timedelta]):
    """A length of time, such as 12h, 7d or 4w."""

    name = "TIME"

    def convert(self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        from gpu_control_plane.usage.hours import read_period  # noqa: PLC0415

        found = read_period(value)
        if found is None:
            self.fail(f"{value!r} is no length of time: write 12h, 7d or 4w.", param, ctx)
        return found


@click.command("usage", short_help="GPU-hours held, used and wasted.", epilog=_EXAMPLES)
@connected()
@click.option("--since", type=_Span(), default="7d", show_default=True, help="How far back: 12h, 7d, 4w.")
@click.option("--by", type=click.Choice(_BY), default="namespace", show_default=True, help="By what to add up.")
@click.option("--prometheus", metavar="URL", help="Which Prometheus.  [default: one that runs in the cluster]")
@click.option("--no-prometheus", is_flag=True, help="Only what the cluster's objects say: held now, and since when.")
@click.option("-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True)
@click.pass_context
def command(
    context: click.Context,
    *,
    connection: Connection,
    since: timedelta,
    by: str,
    prometheus: str | None,
    no_prometheus: bool,
    output: str,
) -> None:
    """Add up GPU-hours: held by pods, used by them (held times utilisation), held idle, and wasted.

    The numbers come from Prometheus, which scrapes the agents. Without one you are shown what is held now, since the
    pods started. What was not measured is left empty: it is never 0.
    """
    if prometheus and no_prometheus:
        raise click.UsageError("--prometheus names one, --no-prometheus wants none: leave one of them out.")

    async def work(client: "Client") -> "Usage":
        return await _usage(client, by, since, prometheus, without=no_prometheus)

    found = connection.run(work)
    show(found, output)
    context.exit(ExitCode.OK if found.complete else ExitCode.PARTIAL)


async def _usage(client: "Client", by: str, since: timedelta, url: str | None, *, without: bool) -> "Usage":
    from gpu_control_plane.api.gpudevice import GPUDevice  # noqa: PLC0415
    from gpu_control_plane.kube.times import utc_now  # noqa: PLC0415
    from gpu_control_plane.usage.hours import By  # noqa: PLC0415
    from gpu_control_plane.usage.prometheus import PrometheusAt, find_prometheus  # noqa: PLC0415
    from gpu_control_plane.usage.reading import pools_of, usage_from_prometheus, usage_now  # noqa: PLC0415

    source: Prometheus | None = None
    if not without:
        source = PrometheusAt(url) if url else await find_prometheus(client)
    if source is None:
        return await usage_now(client, By(by), since, utc_now())
    pools = pools_of(await client.list(GPUDevice)) if by == By.POOL else {}
    return await usage_from_prometheus(source, By(by), since, pools)


def show(found: "Usage", output: str) -> None:
    """The rows, and beside them where they come from."""
    if output in {"json", "yaml"}:
        show_document(found, output)
        return
    say(f"GPU-hours of the last {_days(found.since)}, by {found.by}, from {found.source}.")
    for note in found.notes:
        say(f"! {note}")
    if found.rows:
        _table(str(found.by)).show(found.rows, output)
    else:
        say("No pod held a card.")


def _days(hours: float) -> str:
    return f"{hours / 24:g} days" if hours >= 48 and hours % 24 == 0 else f"{hours:g} hours"  # noqa: PLR2004


def _table(by: str) -> "Table[UsageRow]":
    def number(value: float | None) -> str:
        return "not measured" if value is None else f"{value:,.1f}"

    return Table(
        columns=(
            Column(title=by.upper(), value=lambda row: row.key),
            Column(title="HELD", value=lambda row: row.held, text=lambda row: number(row.held), summed=True),
            Column(title="USED", value=lambda row: row.used, text=lambda row: number(row.used), summed=True),
            Column(title="IDLE", value=lambda row: row.idle, text=lambda row: number(row.idle), summed=True),
            Column(title="WASTE", value=lambda row: row.waste, text=lambda row: number(row.waste), summed=True),
            Column(
                title="USED %",
                value=lambda row: row.share,
                text=lambda row: "" if row.share is None else f"{row.share:g} %",
            ),
            Column(title="UNMEASURED", value=lambda row: row.unmeasured, wide=True, summed=True),
        ),
        name=lambda row: row.key,
        total=True,
    )
