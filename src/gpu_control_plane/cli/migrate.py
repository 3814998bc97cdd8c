"""`kubectl gpu migrate`: from NVIDIA's operator to this one, and back. For KubeRay's there is `migrate ray`."""

import sys
from collections.abc import Callable, Coroutine
from typing import IO, TYPE_CHECKING, Any

import click

from gpu_control_plane.cli import migrate_ray
from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.values_file import read_release_values

if TYPE_CHECKING:
    from gpu_control_plane.cli.screen import Screen
    from gpu_control_plane.kube import Client
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

_namespace = click.option(
    "-n", "--namespace", metavar="NS", help="Where NVIDIA's operator runs.  [default: it is looked for]"
)


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
    from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415

    with Screen(sys.stderr).step("Reading the cluster"):
        made = _run(connection, lambda client: _planned(client, connection))
    if output == "json":
        import msgspec  # noqa: PLC0415

        click.echo(msgspec.json.format(msgspec.json.encode(made), indent=2))
        return
    from gpu_control_plane.cli.migration_plan import show_plan  # noqa: PLC0415

    show_plan(Screen(sys.stdout), made)


@command.command("take-over")
@connected(system_namespace=True)
@_namespace
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also if this operator does not run, or the plan has problems.")
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=180, show_default=True, help="Seconds its pods have to end."
)
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
    from gpu_control_plane.cli.screen import ATTENTION, OK, Screen  # noqa: PLC0415
    from gpu_control_plane.operator.migration import operator_switch  # noqa: PLC0415

    screen = Screen(sys.stdout)

    async def work(client: "Client") -> tuple[operator_switch.SwitchResult, bool]:
        ours = await connection.system_namespace_in(client)
        operator = await operator_switch.find_operator(client, ours, connection.namespace)
        runs = await operator_switch.our_controller_runs(client, ours)
        if not force and not runs:
            raise operator_switch.SwitchError(
                "This operator does not run here: nothing would manage the stack. Install it first, with "
                "operator.enabled=true, or use --force."
            )
        if not force and (problems := (await _planned(client, connection)).problems):
            raise operator_switch.SwitchError(
                "A take-over would do harm. Mend this first, see `kubectl gpu migrate plan`, or use --force:\n"
                + "\n".join(f"  - {problem}" for problem in problems)
            )
        if not yes:
            click.confirm(f"Scale {operator.key} to zero and let this operator take over?", abort=True)
        with Screen(sys.stderr).step(f"Waiting for the pods of {operator.key} to end") as step:
            done = await operator_switch.take_over(client, operator, ours, progress=step.detail, timeout=timeout)
            return done, runs

    done, runs = _run(connection, work)
    before = f"; it had {done.replicas} {_replicas(done.replicas)}" if done.replicas else ""
    screen.mark(OK, f"{done.namespace}/{done.name} is scaled to zero{before}.")
    screen.mark(OK, "Its Lease was deleted." if done.lease_deleted else "It left no Lease.")
    if done.other_holder is not None:
        other = done.other_holder
        screen.mark(ATTENTION, f"Another operator is still active: {other.holder} in {other.namespace}.")
    if runs:
        screen.line("  This operator begins within seconds.")
    else:
        screen.mark(ATTENTION, "This operator does not run: nothing manages the stack until it does.")
    screen.line(
        "  Do not run `helm upgrade` or `helm uninstall` on NVIDIA's release: the first would start its operator"
    )
    screen.line("  again, the second would delete the ClusterPolicy and all operands.")
    screen.line()
    for line in ("kubectl get clusterpolicy", "kubectl gpu migrate give-back"):
        screen.line(f"  {screen.style(line, fg='cyan')}")


@command.command("give-back")
@connected(system_namespace=True)
@_namespace
@click.option("--yes", is_flag=True, help="Do not ask.")
def give_back(*, connection: Connection, yes: bool) -> None:
    """Start NVIDIA's operator again, with as many replicas as it had. This one steps back by itself.

    \b
    Examples:
      kubectl gpu migrate give-back
      kubectl gpu migrate give-back --yes --namespace gpu-operator

    \b
    Exit codes: 0 done; 1 failed; 2 wrong usage; 130 not confirmed.
    """
    from gpu_control_plane.cli.screen import OK, Screen  # noqa: PLC0415
    from gpu_control_plane.operator.migration import operator_switch  # noqa: PLC0415

    async def work(client: "Client") -> operator_switch.SwitchResult:
        ours = await connection.system_namespace_in(client)
        operator = await operator_switch.find_operator(client, ours, connection.namespace)
        if not yes:
            click.confirm(f"Start {operator.key} again and let it take over?", abort=True)
        return await operator_switch.give_back(client, operator)

    done = _run(connection, work)
    screen = Screen(sys.stdout)
    screen.mark(OK, f"{done.namespace}/{done.name} has {done.replicas} {_replicas(done.replicas)} again.")
    screen.line("  Once it holds its Lease this operator writes nothing more, and says so: OtherOperatorActive.")


def _replicas(number: int) -> str:
    return "replica" if number == 1 else "replicas"


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


def _run[T](connection: Connection, work: "Callable[[Client], Coroutine[Any, Any, T]]") -> T:
    """Do the work on the cluster that the options select."""
    from gpu_control_plane.kube.errors import Forbidden  # noqa: PLC0415

    try:
        return connection.run(work)
    except Forbidden as error:
        raise click.ClickException(
            f"{error}. Use the kubeconfig of an administrator: a migration reads objects of the whole cluster, and a "
            "take-over writes a Deployment and deletes a Lease."
        ) from error
