"""`kubectl gpu retire`: take cards out of service, until they are safe to pull."""

from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli import names
from gpu_control_plane.cli.plans import Run, cards_of, need_cards, nodes_option, planning, reason_option

if TYPE_CHECKING:
    from gpu_control_plane.actions.plan import Plan
    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.views.fleet import Fleet


@click.command("retire", short_help="Take cards out of service, until they are safe to pull.")
@click.argument("cards", nargs=-1, metavar="[CARD]...", shell_complete=names.devices)
@nodes_option
@click.option("--undo", is_flag=True, help="Take them back into service, to where they were.")
@reason_option
@planning(waits=False)
def command(*, run: Run, cards: tuple[str, ...], nodes: tuple[str, ...], undo: bool, reason: str | None) -> None:
    """Take cards out of service.

    No new pod gets such a card, those that have it run on, and when they have ended it leaves its pool: then it is safe
    to pull. The approval stays, so that --undo brings the card back. Repeat the command to see how far it is.

    \b
    Examples:
      kubectl gpu retire worker-3-0000-18-00-0 --dry-run             who holds it?
      kubectl gpu retire worker-3-0000-18-00-0 --wait --reason "RMA 4711"
      kubectl gpu retire --node worker-3 --wait --timeout 2h
      kubectl gpu retire worker-3-0000-18-00-0 --undo

    \b
    Exit codes: 0 done; 1 error; 2 wrong usage; 3 no such card;
      5 some of it was not done, or not in time.
    """
    need_cards(cards, nodes)
    from gpu_control_plane.actions.card_progress import assignment_progress, retirement_progress  # noqa: PLC0415
    from gpu_control_plane.actions.card_service import plan_retire, plan_unretire  # noqa: PLC0415

    def make(_client: "Client", fleet: "Fleet") -> "Plan":
        return (plan_unretire if undo else plan_retire)(fleet, cards_of(fleet, cards, nodes), reason)

    run.plan(make, nodes=nodes, cards=cards, progress=assignment_progress if undo else retirement_progress)
