"""Plans and what became of them, as people read them. What is done goes to standard output, what is not to standard
error."""

import sys
from collections.abc import Mapping, Sequence

from gpu_control_plane.actions.card_progress import named
from gpu_control_plane.actions.carry_out import Outcome
from gpu_control_plane.actions.plan import CardChange, Plan
from gpu_control_plane.cli.screen import ATTENTION, IDLE, OK, Screen

_MOST_LINES = 20
"""Cards that are listed one by one; JSON has all."""


def show_plan(screen: Screen, plan: Plan, standing: Mapping[str, str]) -> None:
    """What would be written and what it would lead to."""
    if plan.edits:
        screen.line("Dry run: nothing is written.")
    show_changes(screen, plan.cards)
    silent = {edit.name for edit in plan.edits} - {change.card for change in plan.cards}
    for name in sorted(silent)[:_MOST_LINES]:
        screen.line(f"  {name}: written, and it stays where it is")
    _show_rest(screen, plan, standing)
    if plan.edits:
        screen.line(f"For real: {screen.style(plan.command, fg='cyan')}")


def show_outcomes(screen: Screen, plan: Plan, standing: Mapping[str, str], outcomes: Sequence[Outcome]) -> None:
    """What became of each object."""
    errors = Screen(sys.stderr)
    failed = [outcome for outcome in outcomes if not outcome.done]
    done = {outcome.name for outcome in outcomes if outcome.done}
    show_changes(screen, [change for change in plan.cards if change.card in done or not failed])
    silent = sorted(done - {change.card for change in plan.cards})
    for name in silent[:_MOST_LINES]:
        screen.mark(OK, f"{name}: written")
    if len(silent) > _MOST_LINES:
        screen.line(f"  and {len(silent) - _MOST_LINES} more")
    for outcome in failed:
        errors.failure(f"{outcome.name}: {outcome.sentence}")
    _show_rest(screen, plan, standing, units=not failed)


def show_changes(screen: Screen, changes: Sequence[CardChange]) -> None:
    """Cards that end elsewhere, as columns."""
    widest = max((len(change.card) for change in changes[:_MOST_LINES]), default=0)
    models = max((len(change.product or "") for change in changes[:_MOST_LINES]), default=0)
    for change in changes[:_MOST_LINES]:
        way = f"{change.before or '-'} → {change.after or '-'}"
        line = f"{change.card:<{widest}}  {change.product or '':<{models}}  {way}"
        if change.held_by:
            line += f" when {named(change.held_by)} {'has' if len(change.held_by) == 1 else 'have'} ended"
        if change.after is None and change.because:
            line += f": {change.because}"
        screen.mark(ATTENTION if change.held_by or change.after is None else OK, line)
    if len(changes) > _MOST_LINES:
        screen.line(f"  and {len(changes) - _MOST_LINES:,} more cards")


def _show_rest(screen: Screen, plan: Plan, standing: Mapping[str, str], *, units: bool = True) -> None:
    errors = Screen(sys.stderr)
    for each in plan.units if units else ():
        screen.line(f"{each.pool}: units {each.before:,} → {each.after:,} ({each.resource})")
    for name in plan.unchanged[:_MOST_LINES]:
        screen.mark(IDLE, f"{name}: nothing to do{f'; {standing[name]}' if name in standing else ''}")
    if len(plan.unchanged) > _MOST_LINES:
        screen.line(f"  and {len(plan.unchanged) - _MOST_LINES:,} more with nothing to do")
    for note in plan.notes:
        screen.note(note)
    for refusal in plan.refusals[:_MOST_LINES]:
        errors.failure(f"{refusal.name}: {refusal.sentence}")
    if len(plan.refusals) > _MOST_LINES:
        errors.failure(f"and {len(plan.refusals) - _MOST_LINES:,} more, for reasons like these")
