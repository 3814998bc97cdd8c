"""What `kubectl gpu migrate` and `migrate ray` do alike: print a plan, stop the other operator, and start it again."""

import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpu_control_plane.cli.connection import Connection

if TYPE_CHECKING:
    from gpu_control_plane.cli.screen import Screen
    from gpu_control_plane.kube import Client
    from gpu_control_plane.migration.deployment import Deployment
    from gpu_control_plane.migration.operator_switch import SwitchResult
    from gpu_control_plane.migration.other_operator import OtherOperator

type Command = Callable[..., None]

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def other_namespace(words: str) -> Callable[[Command], Command]:
    """The option that says where the other operator runs."""
    return click.option("-n", "--namespace", metavar="NS", help=f"Where {words} runs.  [default: it is looked for]")


def take_over_options(command: Command) -> Command:
    force = click.option("--force", is_flag=True, help="Also if this operator does not run, or the plan has problems.")
    timeout = click.option(
        "--timeout", type=click.FloatRange(min=1), default=180, show_default=True, help="Seconds its pods have to end."
    )
    return yes_option(force(timeout(command)))


class Words(NamedTuple):
    """What a command says of its switch."""

    duty: str
    """What nothing would do without an operator: `look after Ray`."""
    asked: str
    """What a person is asked to let the one or the other operator do."""
    value: str
    """The value of our chart with which ours does it."""
    command: str
    """The commands' group, as it is typed."""


class Candidate(NamedTuple):
    """The operator to be stopped, and ours."""

    operator: "Deployment"
    own_namespace: str
    ours_runs: bool


def run[T](connection: Connection, work: "Callable[[Client], Coroutine[Any, Any, T]]") -> T:
    """Do the work on the cluster that the options select."""
    from gpu_control_plane.kube.errors import Forbidden  # noqa: PLC0415

    try:
        return connection.run(work)
    except Forbidden as error:
        raise click.ClickException(
            f"{error}. Use the kubeconfig of an administrator: a migration reads objects of the whole cluster, and a "
            "take-over writes a Deployment and deletes a Lease."
        ) from error


def print_plan[T](
    connection: Connection,
    planned: "Callable[[Client], Coroutine[Any, Any, T]]",
    output: str,
    show: "Callable[[Screen, T], None]",
) -> None:
    from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415

    with Screen(sys.stderr).step("Reading the cluster"):
        made = run(connection, planned)
    if output == "json":
        import msgspec  # noqa: PLC0415

        click.echo(msgspec.json.format(msgspec.json.encode(made), indent=2))
        return
    show(Screen(sys.stdout), made)


async def find_candidate(
    client: "Client", connection: Connection, other: "OtherOperator", words: Words, *, force: bool
) -> Candidate:
    """The operator to be stopped. Refused, unless forced, while ours does not run."""
    from gpu_control_plane.migration.operator_switch import (  # noqa: PLC0415
        SwitchError,
        find_operator,
        our_controller_runs,
    )

    own = await connection.system_namespace_in(client)
    operator = await find_operator(client, other, own, connection.namespace)
    runs = await our_controller_runs(client, own)
    if not force and not runs:
        raise SwitchError(
            f"This operator does not run here: nothing would {words.duty}. Install it first, with "
            f"{words.value}, or use --force."
        )
    return Candidate(operator, own, runs)


def refuse_harm(problems: Sequence[str], words: Words) -> None:
    from gpu_control_plane.migration.operator_switch import SwitchError  # noqa: PLC0415

    if problems:
        raise SwitchError(
            f"A take-over would do harm. Mend this first, see `{words.command} plan`, or use --force:\n"
            + "\n".join(f"  - {problem}" for problem in problems)
        )


async def stop(
    client: "Client", other: "OtherOperator", found: Candidate, words: Words, *, yes: bool, timeout: float
) -> "SwitchResult":
    """Ask, and stop the other operator, with a line of progress."""
    from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415
    from gpu_control_plane.migration.operator_switch import take_over  # noqa: PLC0415

    if not yes:
        click.confirm(f"Scale {found.operator.key} to zero and let this operator {words.asked}?", abort=True)
    with Screen(sys.stderr).step(f"Waiting for the pods of {found.operator.key} to end") as step:
        return await take_over(
            client, other, found.operator, found.own_namespace, progress=step.detail, timeout=timeout
        )


def show_stopped(screen: "Screen", done: "SwitchResult") -> None:
    from gpu_control_plane.cli.screen import ATTENTION, OK  # noqa: PLC0415

    before = f"; it had {_replicas(done.replicas)}" if done.replicas else ""
    screen.mark(OK, f"{done.namespace}/{done.name} is scaled to zero{before}.")
    screen.mark(OK, "Its Lease was deleted." if done.lease_deleted else "It left no Lease.")
    if done.other_holder is not None:
        other = done.other_holder
        screen.mark(ATTENTION, f"Another operator is still active: {other.holder} in {other.namespace}.")


def show_next(screen: "Screen", *commands: str) -> None:
    screen.line()
    for command in commands:
        screen.line(f"  {screen.style(command, fg='cyan')}")


def start_again(connection: Connection, other: "OtherOperator", words: Words, *, yes: bool) -> "Screen":
    """Ask, start the other operator again, and say so."""
    from gpu_control_plane.cli.screen import OK, Screen  # noqa: PLC0415
    from gpu_control_plane.migration.operator_switch import find_operator, give_back  # noqa: PLC0415

    async def work(client: "Client") -> "SwitchResult":
        own = await connection.system_namespace_in(client)
        operator = await find_operator(client, other, own, connection.namespace)
        if not yes:
            click.confirm(f"Start {operator.key} again and let it {words.asked}?", abort=True)
        return await give_back(client, operator)

    done = run(connection, work)
    screen = Screen(sys.stdout)
    screen.mark(OK, f"{done.namespace}/{done.name} has {_replicas(done.replicas)} again.")
    screen.line("  Once it holds its Lease this operator writes nothing more, and says so: OtherOperatorActive.")
    return screen


def _replicas(number: int) -> str:
    return f"{number} {'replica' if number == 1 else 'replicas'}"
