"""The plan of a migration on one screen."""

import textwrap

from gpu_control_plane.cli.screen import ATTENTION, BAD, IDLE, OK, Screen, Symbol
from gpu_control_plane.operator.migration.daemonset_changes import DaemonSetAction, DaemonSetChange
from gpu_control_plane.operator.migration.label_changes import KeyChange
from gpu_control_plane.operator.migration.plan import MigrationPlan

_SYMBOLS: dict[DaemonSetAction, Symbol] = {
    DaemonSetAction.CREATED: ("+", "green"),
    DaemonSetAction.CHANGED: ("~", "yellow"),
    DaemonSetAction.RECREATED: ("±", "yellow"),
    DaemonSetAction.KEPT: OK,
    DaemonSetAction.REMOVED: ("-", "red"),
}
_NODES_NAMED = 3
_PATHS_NAMED = 3
_WIDTH = 110


def show_plan(screen: Screen, plan: MigrationPlan) -> None:
    _show_heads(screen, plan)
    if plan.problems:
        _title(screen, "What is in the way")
    for problem in plan.problems:
        screen.mark(BAD, _wrapped(problem, 2))
    _show_fields(screen, plan)
    _show_keys(screen, plan, "Labels of nodes", "LABEL", plan.labels)
    if plan.annotations:
        _show_keys(screen, plan, "Annotations of nodes", "ANNOTATION", plan.annotations)
    _show_daemonsets(screen, plan)
    _show_end(screen, plan)


def _show_end(screen: Screen, plan: MigrationPlan) -> None:
    """The steps that are left, and the command to type when there is something to take over."""
    _title(screen, "Before you take over")
    for number, step in enumerate(plan.todo, start=1):
        screen.line(f"  {number}. {_wrapped(step, 5)}")
    if plan.problems:
        screen.mark(BAD, "Mend what is in the way, as said above: until then a take-over is refused.")
        return
    if not plan.todo:
        screen.mark(OK, "Nothing.")
    if plan.operators or plan.holder is not None:
        screen.line()
        screen.line(f"  {screen.style('kubectl gpu migrate take-over', fg='cyan')}")


def _show_heads(screen: Screen, plan: MigrationPlan) -> None:
    if not plan.operators:
        absent = (
            f"NVIDIA's operator is active as {plan.holder}, but no Deployment of it was found in {plan.namespace}."
            if plan.holder
            else "NVIDIA's operator does not run here."
        )
        screen.mark(ATTENTION if plan.holder else IDLE, screen.style(absent, bold=True))
    for one in plan.operators:
        where = f"{one.namespace}/{one.name}, {one.replicas} {'replica' if one.replicas == 1 else 'replicas'}"
        screen.mark(
            ATTENTION if plan.holder else IDLE,
            screen.style(f"NVIDIA's operator: {where}{', active' if plan.holder else ''}", bold=True),
        )
    screen.mark(OK if plan.ours else IDLE, f"This operator: {f'runs as {plan.ours}' if plan.ours else 'does not run'}")
    screen.mark(
        OK if plan.policy else IDLE, f"ClusterPolicy: {plan.policy or 'none'}, operands in namespace {plan.namespace}"
    )
    if plan.drivers:
        screen.mark(OK, f"NVIDIADrivers: {', '.join(plan.drivers)}")
    for remark in plan.remarks:
        screen.mark(ATTENTION, remark)


def _show_fields(screen: Screen, plan: MigrationPlan) -> None:
    if not plan.fields:
        return
    _title(screen, "Fields that change nothing")
    screen.table(("OBJECT", "FIELD", ""), [(ATTENTION, (note.object, note.path, note.verdict)) for note in plan.fields])


def _show_keys(screen: Screen, plan: MigrationPlan, title: str, head: str, changes: tuple[KeyChange, ...]) -> None:
    _title(screen, title)
    if not plan.compared:
        screen.mark(IDLE, "Not compared: there is no ClusterPolicy that can be carried out.")
        return
    if not changes:
        screen.mark(OK, "All as they should be.")
        return
    rows = [
        (
            ("+", "green") if change.before is None else ("-", "red") if change.after is None else ("~", "yellow"),
            (change.key, change.before or "", change.after or "", _nodes(change.nodes)),
        )
        for change in changes
    ]
    screen.table((head, "IS", "WOULD BE", "NODES"), rows)


def _show_daemonsets(screen: Screen, plan: MigrationPlan) -> None:
    _title(screen, "DaemonSets")
    if not plan.compared:
        screen.mark(IDLE, "Not compared: there is no ClusterPolicy that can be carried out.")
        return
    if not plan.daemonsets:
        screen.mark(IDLE, "None, since no node has a card.")
        return
    screen.table(
        ("DAEMONSET", "OF", "WOULD BE", "PODS", "WHAT BECOMES OF THEM"),
        [(_SYMBOLS[change.action], _row(change)) for change in plan.daemonsets],
    )
    changed = [change for change in plan.daemonsets if change.differences]
    if changed:
        _title(screen, "What differs in them")
        screen.table(("DAEMONSET", "FIELDS"), [(_SYMBOLS[one.action], (one.name, _paths(one))) for one in changed])


def _row(change: DaemonSetChange) -> tuple[str, ...]:
    pods = str(change.pods) if change.pods == change.pods_after else f"{change.pods} → {change.pods_after}"
    return change.name, change.owner, change.action, pods, change.restart.meaning if change.pods else ""


def _paths(change: DaemonSetChange) -> str:
    short = [path.removeprefix("spec.template.").removeprefix("spec.") for path in change.differences[:_PATHS_NAMED]]
    more = f" and {len(change.differences) - _PATHS_NAMED} more" if len(change.differences) > _PATHS_NAMED else ""
    return ", ".join(short) + more


def _nodes(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NODES_NAMED} more" if len(names) > _NODES_NAMED else ""
    return f"{len(names)}: {', '.join(names[:_NODES_NAMED])}{more}"


def _wrapped(text: str, indent: int) -> str:
    """A long sentence in lines that a terminal can show, the later ones below the first."""
    return textwrap.fill(text, _WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False)


def _title(screen: Screen, text: str) -> None:
    screen.line()
    screen.line(screen.style(text, bold=True))
