"""`kubectl gpu explain`: why a pod waits, and what is the matter with a pool, a card or a node."""

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli import names
from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.output import show_document
from gpu_control_plane.kube.sentences import one_line

if TYPE_CHECKING:
    from gpu_control_plane.api.pod import WaitingPod
    from gpu_control_plane.kube import Client
    from gpu_control_plane.kube.objects import Object
    from gpu_control_plane.pools.explain.explanation import Explanation
    from gpu_control_plane.pools.explain.objects import Finding

_EXAMPLES = """\b
Examples:
  kubectl gpu explain pod train-7c98-dmddk -n team-a
  kubectl gpu explain pod train -n team-a            pods of the Deployment are not even created
  kubectl gpu explain pool training
  kubectl gpu explain device worker-3-0000-18-00-0
  kubectl gpu explain node worker-3
"""

_KINDS = {
    "gpudevice.gpu.deckhouse.io": "device",
    "gpudevice": "device",
    "gpupool.gpu.deckhouse.io": "pool",
    "gpupool": "pool",
    "gpunodestate.gpu.deckhouse.io": "node",
    "gpunodestate": "node",
}
"""How `-o name` calls what is explained here."""
_LABEL_WIDTH = 16
"""Columns of what stands before a sentence."""

_output = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)


class _ByKind(click.Group):
    """Takes `pod/NAME` for `pod NAME`, as kubectl does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and "/" in args[0]:
            kind, _, name = args[0].partition("/")
            args = [_KINDS.get(kind, kind), name, *args[1:]]
        return super().parse_args(ctx, args)


@click.group(
    "explain",
    cls=_ByKind,
    short_help="Why a pod waits; what is the matter with a pool, card or node.",
    epilog=_EXAMPLES,
)
def command() -> None:
    """Say why a pod gets no card, and what is the matter with a pool, a card or a node.

    The Events of waiting pods say the same; this says it now, and more: who holds the cards, and who is ahead.
    """


@command.command("pod")
@click.argument("name", shell_complete=names.waiting_pods)
@connected(namespace="Namespace of the pod.")
@_output
def pod(*, name: str, connection: Connection, output: str) -> None:
    """Why a pod waits: the first true cause, and the way out for you and for an administrator.

    NAME may also be a Deployment, ReplicaSet or Job whose pods are refused, by a quota say. Who may not read nodes and
    cards is shown what the controller has told the pod.

    \b
    Examples:
      kubectl gpu explain pod train-7c98-dmddk -n team-a
      kubectl gpu explain pod train-7c98-dmddk -n team-a -o json | jq -r .cause

    \b
    Exit codes: 0 explained, also if it waits for nothing; 1 no answer; 2 wrong usage; 3 no such pod.
    """

    async def work(client: "Client") -> "PodAnswer":
        return await _explained(client, name, connection.namespace or client.config.namespace)

    answer = connection.run(work)
    if output == "json":
        show_document(answer.found if answer.found is not None else {"told": answer.told}, output)
    else:
        show_pod(answer)


@command.command("pool")
@click.argument("name", shell_complete=names.pools)
@connected()
@_output
def pool(*, name: str, connection: Connection, output: str) -> None:
    """What is the matter with a pool: its conditions, units, and the cards that are not in it.

    \b
    Examples:
      kubectl gpu explain pool training

    \b
    Exit codes: 0 explained; 1 no answer; 2 wrong usage; 3 no such pool.
    """
    from gpu_control_plane.api.gpupool import GPUPool  # noqa: PLC0415
    from gpu_control_plane.pools.explain.objects import explain_pool  # noqa: PLC0415

    _explain("Pool", GPUPool, explain_pool, name=name, connection=connection, output=output)


@command.command("device")
@click.argument("name", shell_complete=names.devices)
@connected()
@_output
def device(*, name: str, connection: Connection, output: str) -> None:
    """What a card does, or why it is in no pool.

    \b
    Examples:
      kubectl gpu explain device worker-3-0000-18-00-0

    \b
    Exit codes: 0 explained; 1 no answer; 2 wrong usage; 3 no such card.
    """
    from gpu_control_plane.api.gpudevice import GPUDevice  # noqa: PLC0415
    from gpu_control_plane.pools.explain.objects import explain_device  # noqa: PLC0415

    _explain("Card", GPUDevice, explain_device, name=name, connection=connection, output=output)


@command.command("node")
@click.argument("name", shell_complete=names.nodes)
@connected()
@_output
def node(*, name: str, connection: Connection, output: str) -> None:
    """What is the matter with a node: its software, what it offers, and its cards that are in no pool.

    \b
    Examples:
      kubectl gpu explain node worker-3

    \b
    Exit codes: 0 explained; 1 no answer; 2 wrong usage; 3 no such GPU node.
    """
    from gpu_control_plane.api.gpunodestate import GPUNodeState  # noqa: PLC0415
    from gpu_control_plane.pools.explain.objects import explain_node  # noqa: PLC0415

    _explain("Node", GPUNodeState, explain_node, name=name, connection=connection, output=output)


def _explain[T: "Object"](
    title: str,
    kind: type[T],
    explain: "Callable[[T], tuple[Finding, ...]]",
    *,
    name: str,
    connection: Connection,
    output: str,
) -> None:
    """What is the matter with one object, by what itself says."""
    findings = explain(connection.run(lambda client: client.get(kind, name)))
    if output == "json":
        show_document(findings, output)
    else:
        _show_findings(f"{title} {name}", findings)


class PodAnswer:
    """About a pod: an explanation, or only what the controller told it."""

    def __init__(self, about: str, *, found: "Explanation | None" = None, told: str = "") -> None:
        self.about = about
        self.found = found
        self.told = told


async def _explained(client: "Client", name: str, namespace: str) -> PodAnswer:
    from gpu_control_plane.api.pod import WaitingPod  # noqa: PLC0415
    from gpu_control_plane.kube.errors import Forbidden, NotFound  # noqa: PLC0415
    from gpu_control_plane.pools import explanation_reads as reads  # noqa: PLC0415
    from gpu_control_plane.pools.explain.pod import explain_pod  # noqa: PLC0415
    from gpu_control_plane.pools.explain.refusal import explain_refusal  # noqa: PLC0415

    try:
        found = await client.get(WaitingPod, name, namespace)
    except NotFound:
        refusals = await reads.read_refusals(client, name, namespace)
        if not refusals:
            raise
        return PodAnswer(f"Pods of {namespace}/{name} are not created", found=explain_refusal(refusals[0], namespace))
    about = f"Pod {namespace}/{name}"
    if found.spec.node_name or not found.active:
        return PodAnswer(about, told=_of_placed(found))
    try:
        explained = explain_pod(await reads.read_pod_snapshot(client, found))
    except Forbidden as error:
        events = await reads.read_told(client, found)
        told = one_line(events[-1].note) if events else "nothing yet"
        return PodAnswer(about, told=f"the controller has told it: {told}\n  (you may not read more: {error})")
    if explained is None:
        return PodAnswer(about, told=f"it asks for no card of a pool. {found.trouble}".rstrip())
    return PodAnswer(f"{about} waits", found=explained)


def _of_placed(found: "WaitingPod") -> str:
    """About a pod that has a node, or has ended."""
    where = f" on {found.spec.node_name}" if found.spec.node_name else ""
    trouble = f": {found.trouble}" if found.trouble else ""
    return f"it waits for no card: {found.status.phase}{where}{trouble}"


def show_pod(answer: PodAnswer) -> None:
    from gpu_control_plane.cli.screen import ATTENTION, OK, Screen  # noqa: PLC0415

    screen = Screen(sys.stdout)
    if answer.found is None:
        screen.mark(OK, f"{answer.about}: {answer.told}")
        return
    found = answer.found
    screen.mark(ATTENTION, f"{answer.about}: {screen.style(str(found.cause), bold=True)}")
    for line in _wrapped(found.sentence, "  "):
        screen.line(line)
    screen.line()
    for label, text in (("You:", found.user), ("Administrator:", found.admin)):
        words, commands = _commands(text)
        before = f"  {label:<{_LABEL_WIDTH}}"
        for line in _wrapped(words, before):
            screen.line(line)
        for number, each in enumerate(commands):
            indent = before if not words and not number else " " * len(before)
            screen.line(f"{indent}{screen.style(each, fg='cyan')}")
    for number, fact in enumerate(found.facts):
        for line in _wrapped(fact, f"  {'Known:' if not number else '':<{_LABEL_WIDTH}}"):
            screen.line(line)


def _commands(text: str) -> tuple[str, list[str]]:
    """The words of a way out, and the commands in it, each on a line of its own that can be copied."""
    commands = re.findall("`(kubectl [^`]+)`", text)
    words = re.sub(r":?\s*`kubectl [^`]+`", "", text).strip()
    return words, commands


def _wrapped(text: str, first: str) -> list[str]:
    from gpu_control_plane.cli.screen import wrapped  # noqa: PLC0415

    return wrapped(_sentence(text), first)


def _sentence(text: str) -> str:
    """With a capital, unless it begins with a name."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text


def _show_findings(title: str, findings: "tuple[Finding, ...]") -> None:
    from gpu_control_plane.cli.screen import ATTENTION, OK, Screen  # noqa: PLC0415

    screen = Screen(sys.stdout)
    screen.line(screen.style(title, bold=True))
    for finding in sorted(findings, key=lambda each: each.fine):
        first, *rest = _wrapped(finding.sentence, "  ")
        screen.mark(OK if finding.fine else ATTENTION, first.lstrip())
        for line in rest:
            screen.line(line)
