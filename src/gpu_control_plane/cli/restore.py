"""`kubectl gpu restore`: bring a backup into a cluster with the same machines."""

import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

import click

from gpu_control_plane.cli.connection import Connection, connected

if TYPE_CHECKING:
    from gpu_control_plane.actions.carry_out import Outcome
    from gpu_control_plane.backup.restore import RestorePlan
    from gpu_control_plane.cli.screen import Screen
    from gpu_control_plane.kube.client import Client

_MOST_LINES = 20


@click.command("restore", short_help="Bring pools and approvals from a file into this cluster.")
@click.argument("file", type=click.File("rb"))
@click.option("--overwrite", is_flag=True, help="Also replace what has been decided otherwise in this cluster.")
@click.option("--dry-run", is_flag=True, help="Show what it leads to, and write nothing.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@connected()
def command(*, file: IO[bytes], overwrite: bool, dry_run: bool, output: str, connection: Connection) -> None:
    """Restore pools, approvals, holds, ClusterPolicies and NVIDIADrivers from a backup.

    A card is recognised by its UUID and its node. Those of machines that have not joined yet become GPUApprovals, which
    the controller follows when the cards appear: nobody has to wait, or come again. What has been decided otherwise in
    this cluster is named and left alone, unless --overwrite says so. Repeating the command is safe.

    \b
    Examples:
      kubectl gpu restore gpus.yaml --dry-run
      kubectl gpu restore gpus.yaml
      kubectl get gpuapprovals                             cards that are still to come

    \b
    Exit codes: 0 restored, or will be when the cards appear; 1 error; 2 wrong usage;
      5 some was left alone.
    """
    from gpu_control_plane.backup.file import InvalidBackup, read_backup  # noqa: PLC0415

    name = "-" if file is sys.stdin.buffer else file.name
    try:
        backup = read_backup(file.read(), name)
    except InvalidBackup as error:
        raise click.ClickException(str(error)) from error

    async def work(client: "Client") -> int:
        from gpu_control_plane.backup.carry_out import check_restore  # noqa: PLC0415
        from gpu_control_plane.backup.collect import read_decisions  # noqa: PLC0415
        from gpu_control_plane.backup.restore import plan_restore  # noqa: PLC0415
        from gpu_control_plane.cli.plans import patiently  # noqa: PLC0415

        decisions = await patiently("Reading cards, nodes and pools", read_decisions(client))
        plan = plan_restore(backup, decisions, file=name, overwrite=overwrite)
        if dry_run:
            plan = await check_restore(client, plan)
        writes = plan.cards.edits or plan.awaited or plan.objects
        outcomes = await _carry_out(client, plan) if writes and not dry_run else None
        _show(plan, outcomes, output, dry_run=dry_run)
        return _exit_code(plan, outcomes)

    click.get_current_context().exit(connection.run(work))


async def _carry_out(client: "Client", plan: "RestorePlan") -> "Sequence[Outcome]":
    from gpu_control_plane.backup.carry_out import carry_out_restore  # noqa: PLC0415
    from gpu_control_plane.kube.sentences import counted  # noqa: PLC0415
    from gpu_control_plane.local.progress import Lines  # noqa: PLC0415

    total = len(plan.cards.edits) + len(plan.awaited) + len(plan.objects)
    done = 0
    with Lines(sys.stderr).step(f"Writing {counted(total, 'object')}") as step:

        def told(_outcome: "Outcome") -> None:
            nonlocal done
            done += 1
            step.detail(f"{done} of {total}")

        return await carry_out_restore(client, plan, told=told)


def _show(plan: "RestorePlan", outcomes: "Sequence[Outcome] | None", output: str, *, dry_run: bool) -> None:
    from gpu_control_plane.cli.output import show_document  # noqa: PLC0415
    from gpu_control_plane.cli.plan_text import show_outcomes, show_plan  # noqa: PLC0415
    from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415

    if output == "json":
        show_document({"dryRun": dry_run, "plan": plan, "outcomes": outcomes or ()}, "json")
        return
    screen = Screen(sys.stdout)
    if dry_run and not plan.cards.edits and (plan.awaited or plan.objects):
        screen.line("Dry run: nothing is written.")
    _show_objects(screen, plan, outcomes)
    if outcomes is None:
        show_plan(screen, plan.cards, {})
    else:
        named = {str(each) for each in (*plan.awaited, *plan.objects)}
        cards = [each for each in outcomes if each.name not in named or not each.done]
        show_outcomes(screen, plan.cards, {}, cards)
    if dry_run and not plan.cards.edits and (plan.awaited or plan.objects):
        screen.line(f"For real: {screen.style(plan.cards.command, fg='cyan')}")


def _show_objects(screen: "Screen", plan: "RestorePlan", outcomes: "Sequence[Outcome] | None") -> None:
    """Pools, software and cards that are not there yet; those that failed are told with the cards."""
    from gpu_control_plane.cli.screen import OK  # noqa: PLC0415

    failed = {each.name for each in outcomes or () if not each.done}
    for each in plan.objects:
        if str(each) not in failed:
            screen.mark(OK, f"{each}: {'created' if each.before is None else 'its spec is replaced'}")
    awaited = [each for each in plan.awaited if str(each) not in failed]
    for each in awaited[:_MOST_LINES]:
        pool = each.spec.get("pool")
        screen.mark(OK, f"{each.name}: {f'joins {pool} when it appears' if pool else 'stays out of pools'}")
    if len(awaited) > _MOST_LINES:
        screen.line(f"  and {len(awaited) - _MOST_LINES:,} more cards that are not there yet")


def _exit_code(plan: "RestorePlan", outcomes: "Sequence[Outcome] | None") -> int:
    from gpu_control_plane.cli.exit_codes import ExitCode  # noqa: PLC0415

    failed = [outcome for outcome in outcomes or () if not outcome.done]
    if not plan.cards.refusals and not failed:
        return ExitCode.OK
    writes = len(plan.cards.edits) + len(plan.awaited) + len(plan.objects)
    return ExitCode.PARTIAL if plan.cards.unchanged or writes > len(failed) else ExitCode.ERROR
