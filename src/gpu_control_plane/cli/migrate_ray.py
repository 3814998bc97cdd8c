"""`kubectl gpu migrate ray`: from KubeRay's operator to this one, and back."""

import sys
from typing import IO, TYPE_CHECKING

import click

from gpu_control_plane.cli import operator_switch
from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.values_file import read_release_values

if TYPE_CHECKING:
    from gpu_control_plane.actions.ray_migration.plan import RayMigrationPlan
    from gpu_control_plane.actions.ray_migration.verify import Verification
    from gpu_control_plane.cli.screen import Screen
    from gpu_control_plane.kube import Client
    from gpu_control_plane.migration.operator_switch import SwitchResult

_EXAMPLES = """\b
Examples:
  helm get values kuberay-operator -n ray -o yaml | kubectl gpu migrate ray values - > values.yaml
  kubectl gpu migrate ray plan                   what would become of each object of Ray
  kubectl gpu migrate ray take-over              KubeRay's operator stops, ours begins
  kubectl gpu migrate ray give-back              and back again
"""
_OBJECTS_SHOWN = 40
_VERIFY_SECONDS = 60.0

_WORDS = operator_switch.Words(
    duty="look after Ray", asked="look after Ray", value="ray.enabled=true", command="kubectl gpu migrate ray"
)
_namespace = operator_switch.other_namespace("KubeRay's operator")


@click.group("ray", short_help="From KubeRay's operator to this one, and back.", epilog=_EXAMPLES)
def command() -> None:
    """Move Ray from KubeRay's operator to this one: its values, a plan, the take-over, and the way back.

    RayClusters, RayJobs and RayServices stay as they are, and their pods run on. The CRDs stay KubeRay's. Only
    `take-over` and `give-back` change anything.
    """


@command.command("values")
@click.argument("file", type=click.File("rb"))
def values(file: IO[bytes]) -> None:
    """Turn values of KubeRay's Helm chart into values of ours.

    FILE is a values.yaml, or - for the output of `helm get values -o yaml`. Keys that go nowhere are named on standard
    error, each with the reason.

    \b
    Examples:
      kubectl gpu migrate ray values kuberay.yaml > values.yaml
      helm get values kuberay-operator -n kuberay-operator -o yaml | kubectl gpu migrate ray values -

    \b
    Exit codes: 0 translated, also if some keys go nowhere; 1 no such values; 2 wrong usage.
    """
    import yaml  # noqa: PLC0415

    from gpu_control_plane.cli.screen import ATTENTION, Screen  # noqa: PLC0415
    from gpu_control_plane.gitops.kuberay import translate  # noqa: PLC0415

    made = translate(read_release_values(file, chart="KubeRay's chart"))
    click.echo("# Values for the chart gpu-control-plane, from those of kuberay-operator.")
    click.echo(yaml.safe_dump(made.values, sort_keys=False, allow_unicode=True, width=120), nl=False)
    screen = Screen(sys.stderr)
    for note in made.notes:
        screen.mark(ATTENTION, f"{note.key}: {note.mapping}. {note.why}")


@command.command("plan")
@connected(system_namespace=True)
@_namespace
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def plan(*, connection: Connection, output: str) -> None:
    """Say what would become of each object of Ray if this operator took over. Nothing is changed.

    It is worked out by the operator's own decisions. What would do harm is said first; `take-over` refuses while there
    is any of it.

    \b
    Examples:
      kubectl gpu migrate ray plan
      kubectl gpu migrate ray plan -o json | jq '.objects[] | select(.harmful)'

    \b
    Exit codes: 0 there is a plan, whatever it says; 1 the cluster cannot be read; 2 wrong usage.
    """
    operator_switch.print_plan(connection, lambda client: _planned(client, connection), output, _show)


@command.command("take-over")
@connected(system_namespace=True)
@_namespace
@operator_switch.take_over_options
def take_over(*, connection: Connection, yes: bool, force: bool, timeout: float) -> None:
    """Stop KubeRay's operator, so that this one begins.

    Its Deployment is scaled to zero and its Lease deleted. Pods of Ray run on: this operator notes on them that they
    are its own before it compares. At the end it is verified that none has gone or been restarted. Running it again
    is safe. It is refused while `plan` names problems.

    \b
    Examples:
      kubectl gpu migrate ray plan && kubectl gpu migrate ray take-over
      kubectl gpu migrate ray take-over --yes --namespace kuberay-operator

    \b
    Exit codes: 0 done; 1 refused or failed, with how far it came; 2 wrong usage; 130 not confirmed.
    """
    from gpu_control_plane.actions.ray_migration.installation import KUBERAY, read_ray  # noqa: PLC0415
    from gpu_control_plane.actions.ray_migration.plan import plan_ray_migration  # noqa: PLC0415
    from gpu_control_plane.actions.ray_migration.verify import verify_take_over  # noqa: PLC0415
    from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415

    async def work(client: "Client") -> "tuple[SwitchResult, Verification | None]":
        candidate = await operator_switch.find_candidate(client, connection, KUBERAY, _WORDS, force=force)
        found = await read_ray(client, candidate.own_namespace, connection.namespace)
        if not force:
            operator_switch.refuse_harm(plan_ray_migration(found).problems, _WORDS)
        done = await operator_switch.stop(client, KUBERAY, candidate, _WORDS, yes=yes, timeout=timeout)
        if not candidate.ours_runs:
            return done, None
        with Screen(sys.stderr).step("Waiting for this operator to begin") as step:
            return done, await verify_take_over(client, found.pods, progress=step.detail, timeout=_VERIFY_SECONDS)

    done, verified = operator_switch.run(connection, work)
    _show_taken(Screen(sys.stdout), done, verified)
    if verified is not None and (verified.gone or verified.restarted or not verified.begun):
        raise click.exceptions.Exit(1)


@command.command("give-back")
@connected(system_namespace=True)
@_namespace
@operator_switch.yes_option
def give_back(*, connection: Connection, yes: bool) -> None:
    """Start KubeRay's operator again, with as many replicas as it had. This one steps back by itself.

    \b
    Examples:
      kubectl gpu migrate ray give-back
      kubectl gpu migrate ray give-back --yes --namespace kuberay-operator

    \b
    Exit codes: 0 done; 1 failed; 2 wrong usage; 130 not confirmed.
    """
    from gpu_control_plane.actions.ray_migration.installation import KUBERAY  # noqa: PLC0415

    screen = operator_switch.start_again(connection, KUBERAY, _WORDS, yes=yes)
    screen.line("  KubeRay's operator knows nothing of what is ours alone, such as spec.upgradeStrategy RollingUpdate.")


def _show(screen: "Screen", made: "RayMigrationPlan") -> None:
    from gpu_control_plane.cli.screen import ATTENTION, BAD, IDLE, OK  # noqa: PLC0415

    held = made.holder is not None
    where = ", ".join(made.operators) or "no Deployment of it was found"
    screen.mark(ATTENTION if held else IDLE, f"KubeRay's operator: {where}{', active' if held else ', not active'}")
    screen.mark(OK if made.ours else IDLE, f"This operator: {f'runs as {made.ours}' if made.ours else 'does not run'}")
    if made.problems:
        screen.line()
        screen.line(screen.style("What is in the way", bold=True))
        for problem in made.problems:
            screen.mark(BAD, problem)
    if made.objects:
        screen.line()
        screen.line(screen.style("What becomes of Ray", bold=True))
    for each in sorted(made.objects, key=lambda change: not change.harmful)[:_OBJECTS_SHOWN]:
        pods = f", {each.pods} {'pod' if each.pods == 1 else 'pods'}" if each.pods else ""
        screen.mark(BAD if each.harmful else OK, f"{each.kind} {each.namespace}/{each.name}{pods}: {each.outcome}")
    if len(made.objects) > _OBJECTS_SHOWN:
        screen.line(f"  … and {len(made.objects) - _OBJECTS_SHOWN} more: -o json has all")
    screen.line()
    screen.line(screen.style("Before you take over", bold=True))
    for number, step in enumerate(made.todo, start=1):
        screen.line(f"  {number}. {step}")
    if made.problems:
        screen.mark(BAD, "Mend what is in the way, as said above: until then a take-over is refused.")
        return
    if not made.todo:
        screen.mark(OK, "Nothing.")
    if made.operators or held:
        operator_switch.show_next(screen, "kubectl gpu migrate ray take-over")


def _show_taken(screen: "Screen", done: "SwitchResult", verified: "Verification | None") -> None:
    from gpu_control_plane.cli.screen import ATTENTION, BAD, OK  # noqa: PLC0415

    operator_switch.show_stopped(screen, done)
    if verified is None:
        screen.mark(ATTENTION, "This operator does not run: nothing looks after Ray until it does.")
    else:
        if verified.begun:
            screen.mark(OK, "This operator has begun.")
        else:
            screen.mark(BAD, "Objects still say that KubeRay's operator is active: see `kubectl gpu doctor`.")
        pods = f"{verified.pods} {'pod' if verified.pods == 1 else 'pods'}"
        screen.mark(OK, f"{pods} of Ray ran before and run on.")
        for name in verified.gone:
            screen.mark(BAD, f"Pod {name} has gone meanwhile: `kubectl events -n {name.split('/')[0]}` says why.")
        for name in verified.restarted:
            screen.mark(BAD, f"Pod {name} was restarted meanwhile.")
    screen.line(
        "  `helm upgrade` of KubeRay's release would start its operator again. Before `helm uninstall`, see that its"
    )
    screen.line("  CRDs are no part of the release (docs/migration.md): with them all objects of Ray would go.")
    operator_switch.show_next(screen, "kubectl gpu ray", "kubectl gpu migrate ray give-back")


async def _planned(client: "Client", connection: Connection) -> "RayMigrationPlan":
    from gpu_control_plane.actions.ray_migration.installation import read_ray  # noqa: PLC0415
    from gpu_control_plane.actions.ray_migration.plan import plan_ray_migration  # noqa: PLC0415

    found = await read_ray(client, await connection.system_namespace_in(client), connection.namespace)
    return plan_ray_migration(found)
