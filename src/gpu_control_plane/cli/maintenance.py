"""`kubectl gpu maintenance`: how far a pool's change of allocation is, and what a person can do about it."""

import sys
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli import names
from gpu_control_plane.cli.exit_codes import ExitCode
from gpu_control_plane.cli.plans import Absent, Run, planning

if TYPE_CHECKING:
    from gpu_control_plane.actions.plan import Plan
    from gpu_control_plane.actions.pool_maintenance import MaintenanceView
    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.views.fleet import Fleet

_MOST_LINES = 20


@click.command("maintenance", short_help="How far a pool's change of allocation is; take it back, or speed it up.")
@click.argument("pool", shell_complete=names.pools)
@click.option("--confirm-layout", is_flag=True, help="Say that cards are partitioned as ordered again.")
@click.option("--revert", is_flag=True, help="Take the change back: nodes keep what they have.")
@click.option("--strategy", type=click.Choice(["Pool", "Node"]), help="All cards at once, or node by node.")
@click.option("--deadline", metavar="DURATION", help="When it counts as overdue, from 10s to 720h.")
@planning()
def command(
    *, run: Run, pool: str, confirm_layout: bool, revert: bool, strategy: str | None, deadline: str | None
) -> None:
    """Show how far the maintenance of a pool is, and which pods are in its way; or act on it.

    Maintenance begins with a change of spec.allocation, and never ends a pod.

    \b
    Examples:
      kubectl gpu maintenance training
      kubectl gpu maintenance training --strategy Node
      kubectl gpu maintenance training --revert --dry-run
      kubectl gpu maintenance training --confirm-layout

    \b
    Exit codes: 0 done, or none is under way; 1 error; 2 wrong usage; 3 no such pool;
      4 it is overdue, or needs you.
    """
    from gpu_control_plane.actions.pool_maintenance import plan_confirm_layout, plan_maintenance  # noqa: PLC0415
    from gpu_control_plane.api.gpupool import MaintenanceStrategy  # noqa: PLC0415

    if confirm_layout and (revert or strategy or deadline):
        raise click.UsageError("--confirm-layout is an answer to LayoutMismatch: give it alone.")
    if not (confirm_layout or revert or strategy or deadline):
        _show(run, pool)

    def make(_client: "Client", fleet: "Fleet") -> "Plan":
        if confirm_layout:
            return plan_confirm_layout(fleet, pool)
        chosen = MaintenanceStrategy(strategy) if strategy is not None else None
        return plan_maintenance(fleet, pool, revert=revert, strategy=chosen, deadline=deadline)

    run.plan(make)


def _show(run: Run, name: str) -> None:
    from gpu_control_plane.cli.output import show_document, tell_missing  # noqa: PLC0415

    async def work(client: "Client") -> int:
        from gpu_control_plane.actions.pool_maintenance import view_maintenance  # noqa: PLC0415
        from gpu_control_plane.kube.client import Selection  # noqa: PLC0415
        from gpu_control_plane.kube.times import utc_now  # noqa: PLC0415
        from gpu_control_plane.views.reading import Part, read_fleet  # noqa: PLC0415

        cards = Selection(fields=f"status.poolRef.name={name}")
        fleet = await read_fleet(client, {Part.CARDS, Part.STATES, Part.POOLS}, cards=cards)
        if name not in fleet.pools:
            tell_missing(fleet.missing)
            raise Absent(f"There is no pool {name}: see kubectl gpu pools.")
        view = view_maintenance(fleet, fleet.pools[name], utc_now())
        if run.output == "json":
            show_document(view, "json")
        else:
            _show_view(view)
        incomplete = tell_missing(fleet.missing)
        return ExitCode.FINDINGS if view.overdue or view.awaits_confirmation else incomplete

    click.get_current_context().exit(run.connection.run(work))


def _show_view(view: "MaintenanceView") -> None:
    from gpu_control_plane.actions.plan import command_line  # noqa: PLC0415
    from gpu_control_plane.cli.screen import ATTENTION, OK, Screen  # noqa: PLC0415

    screen = Screen(sys.stdout)
    under_way = view.target is not None or view.since is not None
    screen.mark(ATTENTION if under_way or view.problem else OK, f"{view.pool}: {view.sentence}")
    if view.deadline is not None:
        state = "overdue since" if view.overdue else "overdue at"
        screen.line(f"  since {view.since:%Y-%m-%d %H:%M} UTC, {state} {view.deadline:%Y-%m-%d %H:%M} UTC")
    if view.node is not None:
        screen.line(f"  it is the turn of {view.node}")
    for each in view.in_the_way[:_MOST_LINES]:
        screen.line(f"  waits for {each.pod}  {each.card}  {each.units} in use")
    if len(view.in_the_way) > _MOST_LINES:
        screen.line(f"  and {len(view.in_the_way) - _MOST_LINES} more")
    if view.problem is not None:
        screen.line(f"  {view.problem}")
    if view.awaits_confirmation:
        screen.line(f"  {screen.style(command_line('maintenance', view.pool, confirm_layout=True), fg='cyan')}")
    elif view.target is not None:
        screen.line(f"  to take it back: {command_line('maintenance', view.pool, revert=True)}")
