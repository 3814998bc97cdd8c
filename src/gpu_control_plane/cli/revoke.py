"""`kubectl gpu revoke`: take the approval of cards back."""

from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli import names
from gpu_control_plane.cli.plans import Run, cards_of, need_cards, nodes_option, planning, reason_option

if TYPE_CHECKING:
    from gpu_control_plane.actions.plan import Plan
    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.views.fleet import Fleet


@click.command("revoke", short_help="Take the approval of cards back: they leave their pool.")
@click.argument("cards", nargs=-1, metavar="[CARD]...", shell_complete=names.devices)
@nodes_option
@click.option("--hold", is_flag=True, help="And keep pools that approve cards by themselves away from them.")
@reason_option
@planning(waits=False)
def command(*, run: Run, cards: tuple[str, ...], nodes: tuple[str, ...], hold: bool, reason: str | None) -> None:
    """Take the approval of cards back.

    No new pod gets such a card. Pods that have it run on, and are named; when they have ended the card is free.

    \b
    Examples:
      kubectl gpu revoke worker-3-0000-18-00-0 --reason "goes back to its owner"
      kubectl gpu revoke --node worker-3 --dry-run
      kubectl gpu revoke worker-3-0000-18-00-0 --hold --wait

    \b
    Exit codes: 0 done; 1 error; 2 wrong usage; 3 no such card; 5 some of it was not done.
    """
    need_cards(cards, nodes)
    from gpu_control_plane.actions.approvals import plan_revoke  # noqa: PLC0415
    from gpu_control_plane.actions.card_progress import assignment_progress  # noqa: PLC0415

    def make(_client: "Client", fleet: "Fleet") -> "Plan":
        return plan_revoke(fleet, cards_of(fleet, cards, nodes), reason, hold=hold)

    run.plan(make, nodes=nodes, cards=cards, progress=assignment_progress)
