"""`kubectl gpu preview`: what would change if a pool were applied."""

import sys
from typing import IO, TYPE_CHECKING

import click

from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from gpu_control_plane.actions.pool_files import Previews
    from gpu_control_plane.actions.preview import MaintenanceAhead, Preview, QuotaChange
    from gpu_control_plane.cli.screen import Screen
    from gpu_control_plane.kube.client import Client

_MOST_LINES = 20


@click.command("preview", short_help="What would change if a pool were applied.")
@click.option(
    "-f", "--filename", "file", type=click.File("rb"), required=True, help="YAML or JSON; - for standard input."
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@connected()
def command(*, file: IO[bytes], output: str, connection: Connection) -> None:
    """Say what would change if the pools in a file were applied, new ones or changed ones. Nothing is written.

    The answer comes from the decisions that the controller would make: which cards join, leave and move, what units
    come of it, which pods are in the way, who gains or loses access or quota, and what would be refused. Of several
    pools each is seen with those before it applied.

    \b
    Examples:
      kubectl gpu preview -f training.yaml
      kubectl get gpupool training -o yaml | sed 's/Exclusive/TimeSlice/' | kubectl gpu preview -f -
      kubectl gpu preview -f training.yaml -o json | jq .items[].units

    \b
    Exit codes: 0 it would work; 1 error; 2 wrong usage; 4 it would be refused;
      5 not everything could be checked.
    """
    from gpu_control_plane.actions.pool_files import NotAPool, read_pools  # noqa: PLC0415

    name = "-" if file is sys.stdin.buffer else file.name
    try:
        pools = read_pools(file.read(), name)
    except NotAPool as error:
        raise click.ClickException(str(error)) from error

    async def work(client: "Client") -> "Previews":
        from gpu_control_plane.actions.pool_files import preview_pools  # noqa: PLC0415
        from gpu_control_plane.cli.plans import patiently, read_around  # noqa: PLC0415

        fleet = await patiently("Reading cards, nodes and pools", read_around(client))
        return await preview_pools(client, fleet, pools, name)

    click.get_current_context().exit(_tell(connection.run(work), output))


def _tell(found: "Previews", output: str) -> int:
    from gpu_control_plane.cli.output import say, show_document  # noqa: PLC0415
    from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415

    if output == "json":
        show_document(found, "json")
    else:
        for preview in found.items:
            show_preview(Screen(sys.stdout), preview)
    for sentence in found.unchecked:
        say(f"! {sentence}")
    if any(preview.refusals for preview in found.items):
        return ExitCode.FINDINGS
    return ExitCode.PARTIAL if found.unchecked else ExitCode.OK


def show_preview(screen: "Screen", preview: "Preview") -> None:
    """A preview as people read it."""
    from gpu_control_plane.actions.plan import command_line  # noqa: PLC0415
    from gpu_control_plane.cli.plan_text import show_changes  # noqa: PLC0415
    from gpu_control_plane.cli.screen import ATTENTION  # noqa: PLC0415
    from gpu_control_plane.pools.pending_reasons import PendingReason  # noqa: PLC0415

    title = f"Pool {preview.pool} would be {'created' if preview.new else 'changed'}"
    screen.line(screen.style(title, bold=True))
    for refusal in preview.refusals:
        screen.failure(f"refused: {refusal.sentence}")
    show_changes(screen, preview.cards)
    for units in preview.units:
        screen.line(f"  {units.pool}: units {units.before:,} → {units.after:,} ({units.resource})")
    for reason, cards in preview.waiting.items():
        screen.line(f"  selected and not in it: {cards:,} {reason}")
    if PendingReason.APPROVAL in preview.waiting:
        command = command_line("approve", pool=preview.pool, all_pending=True)
        screen.line(f"  to approve them: {screen.style(command, fg='cyan')}")
    if preview.maintenance is not None:
        _show_maintenance(screen, preview.maintenance)
    for quota in preview.quotas:
        _show_quota(screen, quota)
    for sign, names in (("+", preview.access.added), ("-", preview.access.removed)):
        for name in names:
            screen.line(f"  access {sign} {name}")
    if preview.access.nobody:
        screen.mark(ATTENTION, "spec.access names nobody: only the RBAC verb use lets pods in")
    if preview.changes_nothing and not preview.refusals:
        screen.line("  no card joins or leaves it by itself, and no limit and no right changes")


def _show_maintenance(screen: "Screen", ahead: "MaintenanceAhead") -> None:
    from gpu_control_plane.cli.screen import ATTENTION  # noqa: PLC0415

    closed = "pods go on coming meanwhile" if ahead.serves_meanwhile else "no new pod gets a card until it is done"
    screen.mark(ATTENTION, f"maintenance: {ahead.before} → {ahead.after}, strategy {ahead.strategy}; {closed}")
    for each in ahead.in_the_way[:_MOST_LINES]:
        screen.line(f"    waits for {each.pod}  {each.card}  {each.units} in use")
    if len(ahead.in_the_way) > _MOST_LINES:
        screen.line(f"    and {len(ahead.in_the_way) - _MOST_LINES} more")


def _show_quota(screen: "Screen", quota: "QuotaChange") -> None:
    from gpu_control_plane.cli.screen import ATTENTION  # noqa: PLC0415

    limits = " → ".join("no limit" if limit is None else f"{limit:,}" for limit in (quota.before, quota.after))
    words = f"quota of {quota.namespace} for {quota.resource}: {limits}, holds {quota.held:,}"
    if quota.after is not None and quota.held > quota.after:
        screen.mark(ATTENTION, f"{words}: these go on, new ones are refused")
    else:
        screen.line(f"  {words}")
