"""`kubectl gpu reassign`: move cards from pool to pool."""

from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli import names
from gpu_control_plane.cli.plans import Run, planning, reason_option

if TYPE_CHECKING:
    from gpu_control_plane.actions.plan import Plan
    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.views.fleet import Fleet


@click.command("reassign", short_help="Move cards from their pool to another one.")
@click.argument("cards", nargs=-1, required=True, metavar="CARD...", shell_complete=names.devices)
@click.option(
    "--to", "pool", metavar="POOL", required=True, shell_complete=names.pools, help="The pool that they are to be in."
)
@reason_option
@planning(waits=True)
def command(*, run: Run, cards: tuple[str, ...], pool: str, reason: str | None) -> None:
    """Move cards from their pool to another one.

    A card drains first: no new pod gets it, those that have it run on. When they have ended it joins its new pool. All
    of that is asked for in one write, so you may stop watching at any time, and repeat the command to watch again.

    \b
    Examples:
      kubectl gpu reassign worker-3-0000-18-00-0 --to inference
      kubectl gpu reassign worker-3-0000-18-00-0 --to inference --dry-run
      kubectl gpu reassign worker-3-0000-18-00-0 --to inference --no-wait --reason "inference grows"

    \b
    Exit codes: 0 done; 1 error; 2 wrong usage; 3 no such card;
      5 some of it was not done, or not in time.
    """
    from gpu_control_plane.actions.approvals import plan_reassign  # noqa: PLC0415
    from gpu_control_plane.actions.card_progress import assignment_progress  # noqa: PLC0415

    def make(_client: "Client", fleet: "Fleet") -> "Plan":
        return plan_reassign(fleet, cards, pool, reason)

    run.plan(make, cards=cards, progress=assignment_progress)
