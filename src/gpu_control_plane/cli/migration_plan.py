"""The plan of a migration on one screen."""

from gpu_control_plane.cli.screen import ATTENTION, BAD, IDLE, OK, Screen, Symbol
from gpu_control_plane.operator.migration.plan import Action, DaemonSetChange, Plan

_SYMBOLS: dict[Action, Symbol] = {
    Action.CREATED: ("+", "green"),
    Action.CHANGED: ("~", "yellow"),
    Action.RECREATED: ("±", "yellow"),
    Action.KEPT: OK,
    Action.REMOVED: ("-", "red"),
    Action.SEPARATE: IDLE,
}
_NODES_NAMED = 3
_PATHS_NAMED = 3


def show_plan(screen: Screen, plan: Plan) -> None:
    _show_heads(screen, plan)
    for problem in plan.problems:
        screen.mark(BAD, problem)
    _show_fields(screen, plan)
    _show_labels(screen, plan)
    _show_daemonsets(screen, plan)
    _title(screen, "Before you take over")
    for number, step in enumerate(plan.todo, start=1):
        screen.line(f"  {number}. {step}")
    if not plan.todo:
        screen.mark(OK, "Nothing.")
    screen.line()
    screen.line(f"  {screen.style('kubectl gpu migrate take-over', fg='cyan')}")


def _show_heads(screen: Screen, plan: Plan) -> None:
    if not plan.operators and plan.holder is None:
        screen.mark(IDLE, screen.style("NVIDIA's operator does not run here.", bold=True))
    for one in plan.operators:
        where = f"{one.namespace}/{one.name}, {one.replicas} {'replica' if one.replicas == 1 else 'replicas'}"
        screen.mark(
            ATTENTION if plan.holder else IDLE,
            screen.style(f"NVIDIA's operator: {where}{', in charge' if plan.holder else ''}", bold=True),
        )
    screen.mark(OK if plan.ours else IDLE, f"This operator: {f'runs as {plan.ours}' if plan.ours else 'does not run'}")
    screen.mark(
        OK if plan.policy else IDLE, f"ClusterPolicy: {plan.policy or 'none'}, operands in namespace {plan.namespace}"
    )


def _show_fields(screen: Screen, plan: Plan) -> None:
    if not plan.fields:
        return
    _title(screen, "Fields that change nothing")
    screen.table(("OBJECT", "FIELD", ""), [(ATTENTION, (note.object, note.path, note.verdict)) for note in plan.fields])


def _show_labels(screen: Screen, plan: Plan) -> None:
    _title(screen, "Labels of nodes")
    if not plan.labels:
        screen.mark(OK, "All as they should be.")
        return
    rows = [
        (
            ("+", "green") if change.before is None else ("-", "red") if change.after is None else ("~", "yellow"),
            (change.key, change.before or "", change.after or "", _nodes(change.nodes)),
        )
        for change in plan.labels
    ]
    screen.table(("LABEL", "IS", "WOULD BE", "NODES"), rows)


def _show_daemonsets(screen: Screen, plan: Plan) -> None:
    _title(screen, "DaemonSets")
    if not plan.compared:
        screen.mark(IDLE, "Not compared: there is no ClusterPolicy that can be read.")
        return
    if not plan.daemonsets:
        screen.mark(IDLE, "None, since no node has a card.")
        return
    screen.table(
        ("DAEMONSET", "WOULD BE", "PODS", "", ""),
        [(_SYMBOLS[change.action], _row(change)) for change in plan.daemonsets],
    )


def _row(change: DaemonSetChange) -> tuple[str, ...]:
    fate = "they go" if change.action is Action.REMOVED else change.restart.meaning if change.differences else ""
    short = [path.removeprefix("spec.template.").removeprefix("spec.") for path in change.differences[:_PATHS_NAMED]]
    more = f" and {len(change.differences) - _PATHS_NAMED} more" if len(change.differences) > _PATHS_NAMED else ""
    return change.name, change.action, str(change.pods), fate, ", ".join(short) + more


def _nodes(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NODES_NAMED} more" if len(names) > _NODES_NAMED else ""
    return f"{len(names)}: {', '.join(names[:_NODES_NAMED])}{more}"


def _title(screen: Screen, text: str) -> None:
    screen.line()
    screen.line(screen.style(text, bold=True))
