"""How commands make a plan, show it or carry it out, and wait for what it leads to: the same for every action.

The exit code is 0 where all is done, 5 where some
is, 3 where nothing that was named exists, and 1 otherwise; a dry run ends like the real one, as far as can be foretold.
"""

import functools
import sys
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gpu_control_plane.cli import names
from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from gpu_control_plane.actions.card_progress import CardProgress
    from gpu_control_plane.actions.carry_out import Outcome
    from gpu_control_plane.actions.plan import Plan
    from gpu_control_plane.api.gpudevice import GPUDevice
    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.views.fleet import Fleet

_OPTIONS = frozenset({"dry_run", "output", "wait", "timeout"})
_output_option = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
reason_option = click.option("--reason", metavar="TEXT", help="Why, for the card's history.")
nodes_option = click.option(
    "--node",
    "nodes",
    metavar="NODE",
    multiple=True,
    shell_complete=names.nodes,
    help="All such cards of a node; repeat it.",
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a command is to run: where, whether for real, and how it tells of it."""

    connection: Connection
    dry_run: bool
    output: str
    wait: bool = False
    timeout: str | None = None

    def plan(
        self,
        make: "Callable[[Client, Fleet], Any]",
        *,
        nodes: Collection[str] = (),
        cards: Sequence[str] = (),
        progress: "Callable[[GPUDevice], CardProgress] | None" = None,
    ) -> None:
        """Read what the plan is made of, show or carry it out, and end the process. `make` may be a coroutine."""
        from gpu_control_plane.actions.plan import Plan  # noqa: PLC0415

        async def work(client: "Client") -> int:
            fleet = await patiently("Reading cards, nodes and pools", read_around(client, nodes, cards))
            made = make(client, fleet)
            plan = made if isinstance(made, Plan) else await made
            standing = {name: progress(fleet.cards[name]).sentence for name in plan.unchanged} if progress else {}
            if self.dry_run or not plan.edits:
                outcomes = None
                self._show(plan, standing)
            else:
                outcomes = await self._carry_out(client, plan)
                self._show(plan, standing, outcomes)
            code = exit_code(plan, outcomes)
            written = [outcome.name for outcome in outcomes or () if outcome.done]
            sent = {
                name: card.spec.node_name for name in (*written, *plan.unchanged) if (card := fleet.cards.get(name))
            }
            if self.dry_run or not self.wait or progress is None or not sent:
                return code
            return await self._wait(client, sent, progress) or code

        click.get_current_context().exit(self.connection.run(work))

    async def _carry_out(self, client: "Client", plan: "Plan") -> "Sequence[Outcome]":
        from gpu_control_plane.actions.carry_out import carry_out  # noqa: PLC0415
        from gpu_control_plane.kube.sentences import counted  # noqa: PLC0415
        from gpu_control_plane.local.progress import Lines  # noqa: PLC0415

        done = 0
        with Lines(sys.stderr).step(f"Writing {counted(len(plan.edits), 'object')}") as step:

            def told(_outcome: "Outcome") -> None:
                nonlocal done
                done += 1
                step.detail(f"{done} of {len(plan.edits)}")

            return await carry_out(client, plan, told=told)

    def _show(self, plan: "Plan", standing: Mapping[str, str], outcomes: "Sequence[Outcome] | None" = None) -> None:
        from gpu_control_plane.cli.output import show_document  # noqa: PLC0415
        from gpu_control_plane.cli.plan_text import show_outcomes, show_plan  # noqa: PLC0415
        from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415

        screen = Screen(sys.stdout)
        if self.output == "json":
            show_document({"dryRun": self.dry_run, "plan": plan, "outcomes": outcomes or ()}, "json")
        elif outcomes is None:
            show_plan(screen, plan, standing)
        else:
            show_outcomes(screen, plan, standing, outcomes)

    async def _wait(
        self, client: "Client", cards: Mapping[str, str], progress: "Callable[[GPUDevice], CardProgress]"
    ) -> int:
        import asyncio  # noqa: PLC0415

        from gpu_control_plane.actions.follow import follow  # noqa: PLC0415
        from gpu_control_plane.api.shapes import time_span  # noqa: PLC0415
        from gpu_control_plane.cli.screen import OK, Screen  # noqa: PLC0415

        screen = Screen(sys.stderr if self.output == "json" else sys.stdout)

        def told(now: "CardProgress") -> None:
            screen.mark(OK if now.done else ("·", "bright_black"), f"{now.card}  {now.stage}: {now.sentence}")

        limit = time_span(self.timeout).total_seconds() if self.timeout else None
        try:
            async with asyncio.timeout(limit):
                missing = await follow(client, cards, progress, told)
        except TimeoutError:
            screen.failure(f"Not done within {self.timeout}; it goes on. Repeat the command to see how far it is.")
            return ExitCode.PARTIAL
        except asyncio.CancelledError:
            screen.note("No longer waiting; it goes on. Repeat the command to see how far it is.")
            raise
        if missing is not None:
            screen.failure(f"It was written, and cannot be watched: {missing.why}")
            return ExitCode.PARTIAL
        return ExitCode.OK


def planning(*, waits: bool | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of an action to a command, which takes them as `run`. `waits` is whether it waits for cards
    unless told otherwise; None for an action with nothing to wait for."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(*args: Any, connection: Connection, **given: Any) -> None:
            options = {name: given.pop(name) for name in _OPTIONS & given.keys()}
            function(*args, run=Run(connection=connection, **options), **given)

        made = connected()(command)
        if waits is not None:
            longest = "Wait no longer than this, such as 90s or 1h."
            made = click.option("--timeout", metavar="DURATION", callback=_duration, help=longest)(made)
            shown = "Wait until the cards are where they should be; Ctrl-C only ends the waiting."
            made = click.option("--wait/--no-wait", default=waits, show_default=True, help=shown)(made)
        made = _output_option(made)
        return click.option("--dry-run", is_flag=True, help="Show what it leads to, and write nothing.")(made)

    return decorate


def _duration(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    from gpu_control_plane.api.shapes import time_span  # noqa: PLC0415

    if value is not None and not time_span(value):
        raise click.BadParameter("write it as 90s, 10m or 1h30m.")
    return value


class Absent(click.ClickException):
    """Something that was named does not exist."""

    exit_code = ExitCode.ABSENT


def need_cards(cards: Sequence[str], nodes: Collection[str]) -> None:
    """Some must be named, one way or the other."""
    if not cards and not nodes:
        raise click.UsageError("Name a card, or a node with --node.")


def cards_of(fleet: "Fleet", cards: Sequence[str], nodes: Collection[str]) -> list[str]:
    """The cards that were named, and those of the nodes that were."""
    found = sorted(name for name, card in fleet.cards.items() if card.spec.node_name in nodes)
    empty = set(nodes) - {fleet.cards[name].spec.node_name for name in found}
    if empty and not fleet.lacks("gpudevices"):
        raise Absent(f"There are no cards on {', '.join(sorted(empty))}: see kubectl gpu nodes.")
    return list(dict.fromkeys((*cards, *found)))


async def patiently[T](title: str, work: Coroutine[Any, Any, T]) -> T:
    """Do some work, and say what it is where it takes a while."""
    import asyncio  # noqa: PLC0415

    from gpu_control_plane.cli.output import say  # noqa: PLC0415
    from gpu_control_plane.local.progress import SHOW_AFTER_SECONDS  # noqa: PLC0415

    task = asyncio.create_task(work)
    done, _ = await asyncio.wait({task}, timeout=SHOW_AFTER_SECONDS)
    if not done:
        say(f"{title} …")
    return await task


async def read_around(client: "Client", nodes: Collection[str] = (), cards: Sequence[str] = ()) -> "Fleet":
    """The fleet as far as decisions about these cards or nodes rest on it: all of it unless one node suffices."""
    from gpu_control_plane.api.gpudevice import GPUDevice  # noqa: PLC0415
    from gpu_control_plane.kube.client import EVERYTHING, Selection  # noqa: PLC0415
    from gpu_control_plane.kube.errors import ApiError  # noqa: PLC0415
    from gpu_control_plane.views.reading import Part, read_fleet  # noqa: PLC0415

    concerned = set(nodes) if not cards else set()
    if not nodes and len(cards) == 1:
        try:
            concerned = {(await client.get(GPUDevice, cards[0])).spec.node_name}
        except ApiError:
            concerned = set()  # the names of all cards show which one was meant
    selection = Selection(fields=f"spec.nodeName={concerned.pop()}") if len(concerned) == 1 else EVERYTHING
    return await read_fleet(client, {Part.CARDS, Part.STATES, Part.POOLS, Part.NODES}, cards=selection)


def exit_code(plan: "Plan", outcomes: "Sequence[Outcome] | None") -> int:
    """How the command ends; `outcomes` is None for a dry run, which counts every edit as done."""
    failed = [outcome for outcome in outcomes or () if not outcome.done]
    done = len(plan.unchanged) + (len(plan.edits) if outcomes is None else len(outcomes) - len(failed))
    if not plan.refusals and not failed:
        return ExitCode.OK
    if done:
        return ExitCode.PARTIAL
    absent = all(refusal.absent for refusal in plan.refusals) and all(outcome.absent for outcome in failed)
    return ExitCode.ABSENT if absent else ExitCode.ERROR
