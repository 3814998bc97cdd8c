"""`kubectl gpu clear-fault`: say that faulted cards have been mended."""

from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli import names
from gpu_control_plane.cli.plans import Run, planning, reason_option

if TYPE_CHECKING:
    from gpu_control_plane.actions.plan import Plan
    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.views.fleet import Fleet


@click.command("clear-fault", short_help="Say that faulted cards have been mended.")
@click.argument("cards", nargs=-1, required=True, metavar="CARD...", shell_complete=names.devices)
@reason_option
@planning()
def command(*, run: Run, cards: tuple[str, ...], reason: str | None) -> None:
    """Say that faulted cards, or such as failed burn-in, have been mended: the node's agent looks at them again.

    A card that is still broken stays out of service.

    \b
    Examples:
      kubectl gpu clear-fault worker-3-0000-18-00-0
      kubectl gpu clear-fault worker-3-0000-18-00-0 --reason "reseated"

    \b
    Exit codes: 0 done; 1 error; 2 wrong usage; 3 no such card; 5 some of it was not done.
    """
    from gpu_control_plane.actions.card_service import plan_clear_fault  # noqa: PLC0415

    def make(_client: "Client", fleet: "Fleet") -> "Plan":
        return plan_clear_fault(fleet, cards, reason)

    run.plan(make, cards=cards)
