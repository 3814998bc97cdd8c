"""`kubectl gpu top`: which cards compute, live, on as many lines as the terminal has.

What is drawn is plain text, made by `top_lines`; Rich only puts it on the screen again and again.
"""

import os
import shutil
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli import names
from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.exit_codes import ExitCode
from gpu_control_plane.cli.output import age, say, tell_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.views.cards import CardRow
    from gpu_control_plane.views.fleet import Fleet
    from gpu_control_plane.views.reading import Part
    from gpu_control_plane.views.top import NodeLoad

_EXAMPLES = """\b
Examples:
  kubectl gpu top                         every node, live; Ctrl-C ends it
  kubectl gpu top -n team-a               only cards that pods of team-a hold: do they compute?
  kubectl gpu top --pool training
  kubectl gpu top --once                  print it once, for a script or a mail

\b
Exit codes:
  0  shown
  1  no answer
  5  shown in part: something may not be read
  130  ended by Ctrl-C
"""
_GLYPHS = {"Computing": "▇", "HeldIdle": "▁", "Held": "▒", "Free": "·", "OutOfService": "✕"}
_LEGEND = "▇ computing  ▁ held idle  ▒ held, not measured  · free  ✕ out of service"


@click.command("top", short_help="Which cards compute, live.", epilog=_EXAMPLES)
@click.option("--once", is_flag=True, help="Print it once and end.")
@click.option("--pool", metavar="NAME", shell_complete=names.pools, help="Only cards of this pool.")
@connected(namespace="Only cards that pods of this namespace hold.")
def command(*, once: bool, pool: str | None, connection: Connection) -> None:
    """Which cards compute, which are held and idle, and which are free: a line for each node, and one for each card
    that is worth a look. Where the terminal is too low, cards give way first, then nodes.

    Numbers of a card are those of its last change, from idle to busy or back; metrics have every reading.
    """
    from gpu_control_plane.kube.client import EVERYTHING, Selection  # noqa: PLC0415
    from gpu_control_plane.views.reading import Part, read_fleet  # noqa: PLC0415
    from gpu_control_plane.views.top import node_loads  # noqa: PLC0415

    may_read = Selection(fields="metadata.name=none")  # a question that costs nothing, before the screen is taken
    parts = (Part.CARDS,)
    namespace = connection.namespace

    def lines(fleet: "Fleet", height: int | None = None) -> list[str]:
        nodes = node_loads(fleet, namespace=namespace, pool=pool)
        width = shutil.get_terminal_size().columns
        return top_lines(nodes, width=width, height=height, now=datetime.now(UTC), every_card=namespace is not None)

    async def work(client: "Client") -> int:
        live = not once and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        fleet = await read_fleet(client, parts, cards=may_read if live else EVERYTHING)
        if fleet.missing:
            return tell_missing(fleet.missing)
        if live:
            await _draw(client, parts, lines)
        if node_loads(fleet, namespace=namespace, pool=pool):
            click.echo("\n".join(lines(fleet)))
        else:
            say("No such card.  Next: kubectl gpu devices")
        return ExitCode.OK

    click.get_current_context().exit(connection.run(work))


async def _draw(client: "Client", parts: "Collection[Part]", lines: "Callable[[Fleet, int | None], list[str]]") -> None:
    """Put the lines on the screen whenever something changes, until Ctrl-C."""
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from gpu_control_plane.views.following import follow_fleet  # noqa: PLC0415

    console = Console(highlight=False, no_color=bool(os.environ.get("NO_COLOR")) or None)
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def show(fleet: "Fleet") -> None:
            live.update(Text("\n".join(lines(fleet, console.size.height)), no_wrap=True), refresh=True)

        await follow_fleet(client, show, parts)


def top_lines(
    nodes: "Sequence[NodeLoad]", *, width: int, height: int | None, now: datetime, every_card: bool = False
) -> list[str]:
    """The screen: a summary, a line for each node, and below it one for each card worth a look, or for every card.

    At most `height` lines: cards give way first, then nodes.
    """
    from gpu_control_plane.views.loads import Load  # noqa: PLC0415
    from gpu_control_plane.views.top import count_loads  # noqa: PLC0415

    counts = count_loads(nodes)
    total = sum(counts.values())
    used = sum(count for load, count in counts.items() if load.held)
    figures = f"{used}/{total} held, {counts[Load.HELD_IDLE]} idle, {counts[Load.FREE]} free"
    head = [f"{figures}   {now:%H:%M:%S}", _LEGEND, ""]
    names = max((len(node.node) for node in nodes), default=0)
    bars = max((len(node.cards) for node in nodes), default=0)
    blocks = [(_node_line(node, names, bars), [_card_line(c, now) for c in _shown(node, every_card)]) for node in nodes]
    body = [line for first, rest in blocks for line in (first, *rest)]
    if height is not None and len(head) + len(body) > height:
        body = [first for first, _ in blocks]
    if height is not None and (over := len(head) + len(body) - height) > 0:
        kept = len(body) - over - 1
        body = [*body[:kept], f"and {len(body) - kept} more nodes: --pool or -n shows fewer"]
    return [line if len(line) <= width else f"{line[: width - 1]}…" for line in (*head, *body)]


def _shown(node: "NodeLoad", every_card: bool) -> "tuple[CardRow, ...]":
    return node.cards if every_card else node.notable


def _node_line(node: "NodeLoad", names: int, bars: int) -> str:
    bar = "".join(_GLYPHS.get(card.load, "?") for card in node.cards)
    heat = f"{node.hottest:>3} °C" if node.hottest is not None else "      "
    power = f"{node.power / 1000:.1f} kW" if node.power is not None else ""
    return f"{node.node:<{names}}  {bar:<{bars}}  {node.held:>2}/{len(node.cards):<2}  {heat}  {power}".rstrip()


def _card_line(card: "CardRow", now: datetime) -> str:
    address = card.address.removeprefix("0000:").removesuffix(".0")
    users = " ".join(map(str, card.users[:2])) + (f" +{len(card.users) - 2}" if len(card.users) > 2 else "")  # noqa: PLR2004
    if card.state == "Faulted":
        return f"  {address}  faulted: {card.fault or 'no reason is known'}  {users}".rstrip()
    read = card.readings
    if read is None or read.utilisation is None:
        return f"  {address}  not measured  {users}".rstrip()
    memory = f"{(read.memory_used_mib or 0) / 1024:.0f}/{(card.memory_mib or 0) / 1024:.0f} GiB"
    idle = f"  idle {age(read.at, now)}" if card.load == "HeldIdle" else ""
    return f"  {address}  {read.utilisation:>3} %  {memory}  {users}{idle}".rstrip()
