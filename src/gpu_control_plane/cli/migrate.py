"""`kubectl gpu migrate`: from NVIDIA's operator to this one, and back. For KubeRay's there is `migrate ray`."""

import sys
from typing import IO, TYPE_CHECKING

import click

from gpu_control_plane.cli import migrate_ray, operator_switch
from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.values_file import read_release_values

if TYPE_CHECKING:
    from gpu_control_plane.cli.screen import Screen
    from gpu_control_plane.kube import Client
    from gpu_control_plane.migration.operator_switch import SwitchResult
    from gpu_control_plane.operator.migration.plan import MigrationPlan
    from gpu_control_plane.operator.migration.values import Translation

_EXAMPLES = """\b
Examples:
  helm get values -a gpu-operator -n gpu -o yaml | kubectl gpu migrate values - > values.yaml
  kubectl gpu migrate plan                       what would change, without changing anything
  kubectl gpu migrate plan -o json | jq .todo
  kubectl gpu migrate take-over                  NVIDIA's operator stops, ours begins
  kubectl gpu migrate give-back                  and back again
  kubectl gpu migrate ray plan                   the same for Ray, from KubeRay's operator
"""

_WORDS = operator_switch.Words(
    duty="manage the stack", asked="take over", value="operator.enabled=true", command="kubectl gpu migrate"
)
_namespace = operator_switch.other_namespace("NVIDIA's operator")


@click.group("migrate", short_help="From NVIDIA's or KubeRay's operator to this one, and back.", epilog=_EXAMPLES)
def command() -> None:
    """Move a cluster from NVIDIA's GPU operator to this one: its values, a plan, the take-over, and the way back.

    ClusterPolicy and NVIDIADriver objects stay as they are. Only `take-over` and `give-back` change anything.
    `migrate ray` does the same for Ray.
    """


command.add_command(migrate_ray.command)


@command.command("values")
@click.argument("file", type=click.File("rb"))
def values(file: IO[bytes]) -> None:
    """Turn values of NVIDIA's Helm chart into values of ours.

    FILE is a values.yaml, or - for the output of `helm get values -a -o yaml`. What it does not say is taken to be what
    NVIDIA's chart has by itself. Keys that go nowhere are named on standard error.

    \b
    Examples:
      kubectl gpu migrate values gpu-operator.yaml > values.yaml
      helm get values -a gpu-operator -n gpu-operator -o yaml | kubectl gpu migrate values -

    \b
    Exit codes: 0 translated, also if some keys go nowhere; 1 no such values; 2 wrong usage.
    """
    from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415
    from gpu_control_plane.operator.migration.values import BadValues, translate  # noqa: PLC0415

    given = read_release_values(file, chart="NVIDIA's chart")
    try:
        made = translate(given)
    except BadValues as error:
        raise click.ClickException(f"{file.name}: {error}") from error
    click.echo(_written(made), nl=False)
    _show_notes(Screen(sys.stderr), made)


@command.command("plan")
@connected(system_namespace=True)
@_namespace
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def plan(*, connection: Connection, output: str) -> None:
    """Say what would change if this operator took over. Nothing is changed.

    Labels, drivers and other operands are worked out by the operator's own code, from what the cluster holds and what
    our agents report. What would do harm is said first; `take-over` refuses while there is any of it.

    \b
    Examples:
      kubectl gpu migrate plan
      kubectl gpu migrate plan -o json | jq .problems
      kubectl gpu migrate plan -o json | jq '.daemonsets[] | select(.restart != "none")'

    \b
    Exit codes: 0 there is a plan, whatever it says; 1 the cluster cannot be read, or has nothing
    of NVIDIA's operator there; 2 wrong usage.
    """
    from gpu_control_plane.cli.migration_plan import show_plan  # noqa: PLC0415

    operator_switch.print_plan(connection, lambda client: _planned(client, connection), output, show_plan)


@command.command("take-over")
@connected(system_namespace=True)
@_namespace
@operator_switch.take_over_options
def take_over(*, connection: Connection, yes: bool, force: bool, timeout: float) -> None:
    """Stop NVIDIA's operator, so that this one begins.

    Its Deployment is scaled to zero and its Lease deleted. Its DaemonSets and what they run stay; running pods keep
    their cards. Running it again is safe. It is refused while `plan` names problems, such as a driver that could not
    be deployed here.

    \b
    Examples:
      kubectl gpu migrate plan && kubectl gpu migrate take-over
      kubectl gpu migrate take-over --yes --namespace gpu-operator

    \b
    Exit codes: 0 done; 1 refused or failed, with how far it came; 2 wrong usage; 130 not confirmed.
    """
    from gpu_control_plane.cli.screen import ATTENTION, Screen  # noqa: PLC0415
    from gpu_control_plane.operator.migration.installation import NVIDIA  # noqa: PLC0415

    async def work(client: "Client") -> "tuple[SwitchResult, bool]":
        found = await operator_switch.find_candidate(client, connection, NVIDIA, _WORDS, force=force)
        if not force:
            operator_switch.refuse_harm((await _planned(client, connection)).problems, _WORDS)
        return await operator_switch.stop(client, NVIDIA, found, _WORDS, yes=yes, timeout=timeout), found.ours_runs

    done, runs = operator_switch.run(connection, work)
    screen = Screen(sys.stdout)
    operator_switch.show_stopped(screen, done)
    if runs:
        screen.line("  This operator begins within seconds.")
    else:
        screen.mark(ATTENTION, "This operator does not run: nothing manages the stack until it does.")
    screen.line(
        "  Do not run `helm upgrade` or `helm uninstall` on NVIDIA's release: the first would start its operator"
    )
    screen.line("  again, the second would delete the ClusterPolicy and all operands.")
    operator_switch.show_next(screen, "kubectl get clusterpolicy", "kubectl gpu migrate give-back")


@command.command("give-back")
@connected(system_namespace=True)
@_namespace
@operator_switch.yes_option
def give_back(*, connection: Connection, yes: bool) -> None:
    """Start NVIDIA's operator again, with as many replicas as it had. This one steps back by itself.

    \b
    Examples:
      kubectl gpu migrate give-back
      kubectl gpu migrate give-back --yes --namespace gpu-operator

    \b
    Exit codes: 0 done; 1 failed; 2 wrong usage; 130 not confirmed.
    """
    from gpu_control_plane.operator.migration.installation import NVIDIA  # noqa: PLC0415

    operator_switch.start_again(connection, NVIDIA, _WORDS, yes=yes)


def _written(made: "Translation") -> str:
    """Our values, and below them, as a comment, those that are unknown."""
    import yaml  # noqa: PLC0415

    parts = ["# Values for the chart gpu-control-plane, from those of NVIDIA's gpu-operator.\n"]
    parts.append(yaml.safe_dump(made.values, sort_keys=False, allow_unicode=True, width=120))
    if made.unknown:
        rest = yaml.safe_dump({note.key: note.value for note in made.unknown}, sort_keys=True, width=110)
        parts.append("\n# These values are not known, and have no effect:\n")
        parts += [f"#   {line}\n" for line in rest.splitlines()]
    return "".join(parts)


def _show_notes(screen: "Screen", made: "Translation") -> None:
    from gpu_control_plane.cli.screen import ATTENTION  # noqa: PLC0415
    from gpu_control_plane.operator.migration.chart_defaults import CHART  # noqa: PLC0415

    for note in made.notes:
        screen.mark(ATTENTION, f"{note.key}: {note.mapping}. {note.why}")
    screen.note(
        f"What the file does not say is taken from NVIDIA's chart {CHART}; `helm get values -a` says everything."
    )
    screen.note(
        "managedNodes.enabledByDefault=false: our agent serves a node once gpu.deckhouse.io/enabled=true is on it."
    )


async def _planned(client: "Client", connection: Connection) -> "MigrationPlan":
    from gpu_control_plane.operator.migration.desired import desired_stack  # noqa: PLC0415
    from gpu_control_plane.operator.migration.installation import read_installation  # noqa: PLC0415
    from gpu_control_plane.operator.migration.plan import plan_migration  # noqa: PLC0415

    namespace = connection.namespace
    found = await read_installation(client, await connection.system_namespace_in(client), namespace)
    if namespace is not None and not found.has_nvidia_objects:
        raise click.ClickException(
            f"Namespace {namespace} has nothing of NVIDIA's operator: no Deployment, no Lease, no operands. Leave "
            "--namespace out to look everywhere."
        )
    return plan_migration(found, desired_stack(found))
