"""`kubectl gpu hold`: keep pools that approve cards by themselves away from some."""

from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli import names
from gpu_control_plane.cli.plans import Run, cards_of, need_cards, nodes_option, planning, reason_option

if TYPE_CHECKING:
    from gpu_control_plane.actions.plan import Plan
    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.views.fleet import Fleet


@click.command("hold", short_help="Keep pools that approve cards by themselves away from some.")
@click.argument("cards", nargs=-1, metavar="[CARD]...", shell_complete=names.devices)
@nodes_option
@click.option("--release", is_flag=True, help="Let the pools have them.")
@reason_option
@planning()
def command(*, run: Run, cards: tuple[str, ...], nodes: tuple[str, ...], release: bool, reason: str | None) -> None:
    """Keep pools that approve cards by themselves away from some. A person may approve such a card all the same.

    A card that is in a pool stays there until its approval is taken back: `kubectl gpu revoke CARD --hold` does both.

    \b
    Examples:
      kubectl gpu hold worker-3-0000-18-00-0 --reason "waits for its twin"
      kubectl gpu hold --node worker-3
      kubectl gpu hold worker-3-0000-18-00-0 --release

    \b
    Exit codes: 0 done; 1 error; 2 wrong usage; 3 no such card; 5 some of it was not done.
    """
    need_cards(cards, nodes)
    from gpu_control_plane.actions.card_service import plan_hold, plan_release_hold  # noqa: PLC0415

    def make(_client: "Client", fleet: "Fleet") -> "Plan":
        names = cards_of(fleet, cards, nodes)
        return plan_release_hold(fleet, names) if release else plan_hold(fleet, names, reason)

    run.plan(make, nodes=nodes, cards=cards)
