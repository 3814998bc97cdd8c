"""`kubectl gpu approve`: let cards join a pool."""

import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli import names
from gpu_control_plane.cli.plans import Run, nodes_option, planning, reason_option

if TYPE_CHECKING:
    from gpu_control_plane.actions.plan import Plan
    from gpu_control_plane.api.gpudevice import GPUDevice
    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.views.fleet import Fleet


@click.command("approve", short_help="Let cards join a pool.")
@click.argument("cards", nargs=-1, metavar="[CARD]...", shell_complete=names.devices)
@click.option(
    "--pool",
    metavar="POOL",
    shell_complete=names.pools,
    help="Which pool.  [default: the only one that could have the card]",
)
@click.option("-l", "--selector", metavar="LABELS", help="Cards that wait for an approval and have these labels.")
@nodes_option
@click.option("--model", metavar="WORD", help="Cards that wait for an approval, of this model: h200, or 'A100*80GB'.")
@click.option("--all-pending", is_flag=True, help="All cards that wait for an approval.")
@reason_option
@planning(waits=False)
def command(
    *,
    run: Run,
    cards: tuple[str, ...],
    pool: str | None,
    selector: str | None,
    nodes: tuple[str, ...],
    model: str | None,
    all_pending: bool,
    reason: str | None,
) -> None:
    """Approve cards for a pool: one, many by name, or those that wait for an approval by node, model or label.

    Cards that the pool would not take are refused, each with a sentence; the others are approved. Without any card, on
    a terminal, you are shown those that wait and asked.

    \b
    Examples:
      kubectl gpu approve worker-3-0000-18-00-0 --pool training
      kubectl gpu approve --node worker-3 --reason "new rack" --dry-run
      kubectl gpu approve --all-pending --model h200 --pool training
      kubectl gpu approve                                  asks

    \b
    Exit codes: 0 approved; 1 error; 2 wrong usage; 3 no such card; 5 some were not approved.
    """
    by_filter = bool(nodes or model or selector or all_pending)
    if cards and by_filter:
        raise click.UsageError("Name cards, or choose them with --node, --model, -l or --all-pending: not both.")
    if not cards and not by_filter and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("Name a card, or choose cards with --node, --model, -l or --all-pending.")

    async def chosen(client: "Client", fleet: "Fleet") -> "Plan":
        from gpu_control_plane.actions.approvals import plan_approve, waiting_cards  # noqa: PLC0415
        from gpu_control_plane.actions.plan import Plan, command_line  # noqa: PLC0415
        from gpu_control_plane.api.gpudevice import GPUDevice  # noqa: PLC0415
        from gpu_control_plane.kube.client import Selection  # noqa: PLC0415

        waiting = waiting_cards(fleet, nodes=nodes, model=model)
        if selector is not None:
            labelled = {card.name for card in await client.list(GPUDevice, Selection(labels=selector))}
            waiting = tuple(card for card in waiting if card.name in labelled)
        if not waiting:
            return Plan(command=command_line("approve"), notes=("no such card waits for an approval",))
        if not by_filter:
            return _ask(fleet, waiting, pool, reason)
        return plan_approve(fleet, [card.name for card in waiting], pool, reason)

    def make(client: "Client", fleet: "Fleet") -> "Plan | Awaitable[Plan]":
        from gpu_control_plane.actions.approvals import plan_approve  # noqa: PLC0415

        return plan_approve(fleet, cards, pool, reason) if cards else chosen(client, fleet)

    from gpu_control_plane.actions.card_progress import assignment_progress  # noqa: PLC0415

    run.plan(make, nodes=nodes, cards=cards, progress=assignment_progress)


def _ask(fleet: "Fleet", waiting: "tuple[GPUDevice, ...]", pool: str | None, reason: str | None) -> "Plan":
    """Show the cards that wait, and ask which of them are meant, and for which pool."""
    from gpu_control_plane.actions.approvals import joinable_pools, plan_approve  # noqa: PLC0415
    from gpu_control_plane.cli.plan_text import show_plan  # noqa: PLC0415
    from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415

    pools = {card.name: joinable_pools(fleet, card.name) for card in waiting}
    for number, card in enumerate(waiting, start=1):
        model = card.status.hardware.product if card.status.hardware is not None else "unknown"
        click.echo(f"{number:>4}  {card.name}  {model}  for {' or '.join(pools[card.name]) or 'no pool'}")
    answer = click.prompt("Which", default="all", show_default=True)
    chosen = [waiting[number - 1].name for number in numbers(answer, len(waiting))]
    offered = sorted({each for name in chosen for each in pools[name]})
    if pool is None and len(offered) > 1:
        pool = click.prompt("For which pool", type=click.Choice(offered))
    reason = reason or click.prompt("Why", default="", show_default=False) or None
    plan = plan_approve(fleet, chosen, pool, reason)
    show_plan(Screen(sys.stdout), plan, {})
    if plan.edits:
        click.confirm("Do it?", abort=True)
    return plan


def numbers(answer: str, most: int) -> list[int]:
    """`all`, `3` or `1-4, 7` as numbers."""
    if answer.strip() == "all":
        return list(range(1, most + 1))
    found: list[int] = []
    for part in answer.replace(",", " ").split():
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise click.UsageError(f"{part} is no number and no range: write all, 3, or 1-4, 7.")
        found += range(int(first), int(last or first) + 1)
    if wrong := [number for number in found if not 1 <= number <= most]:
        raise click.UsageError(f"There is no card {wrong[0]} in this list.")
    return list(dict.fromkeys(found))
