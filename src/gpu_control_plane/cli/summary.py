"""A local cluster on one screen: the same after `up` and in `status --local`."""

import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from gpu_control_plane.cli.options import DEFAULT_NAME
from gpu_control_plane.cli.screen import ATTENTION, BAD, IDLE, OK, Screen, Symbol
from gpu_control_plane.local.progress import duration
from gpu_control_plane.local.simulated_nodes import NodeSummary
from gpu_control_plane.local.status import ClusterState, ClusterStatus, ComponentStatus

_SYMBOLS: dict[ClusterState, Symbol] = {
    ClusterState.ABSENT: IDLE,
    ClusterState.STARTING: ATTENTION,
    ClusterState.RUNNING: OK,
    ClusterState.DEGRADED: ATTENTION,
    ClusterState.STOPPING: ATTENTION,
    ClusterState.STOPPED: IDLE,
    ClusterState.FAILED: BAD,
}
_SENTENCES = {
    ClusterState.ABSENT: "There is no cluster {name}.",
    ClusterState.STARTING: "The cluster {name} is starting.",
    ClusterState.RUNNING: "The cluster {name} runs at {server}",
    ClusterState.DEGRADED: "The cluster {name} runs at {server}, but not all of it.",
    ClusterState.STOPPING: "The cluster {name} is stopping.",
    ClusterState.STOPPED: "The cluster {name} is stopped.",
    ClusterState.FAILED: "The cluster {name} did not start.",
}
_NODES_NAMED = 5


def show_summary(
    screen: Screen, status: ClusterStatus, further: Sequence[str] = (), *, console: str | None = None
) -> None:
    """The cluster, its components, the console's address, and commands to type next, with `further` ones before the
    last."""
    sentence = _SENTENCES[status.state].format(name=status.name, server=status.server)
    screen.mark(_SYMBOLS[status.state], screen.style(sentence, bold=True))
    if status.error:
        screen.line(f"  {status.error}")
    if status.components and status.state.alive:
        screen.line()
        screen.table(
            ("COMPONENT", "VERSION", "ADDRESS", "PID", "FOR", ""), [_row(component) for component in status.components]
        )
        screen.line()
        screen.line(f"  Nodes        {_nodes(status.nodes)}")
        screen.line(f"  Kubeconfig   {status.kubeconfig}")
        screen.line(f"  Logs         {Path(status.folder) / 'logs'}")
        if console is not None:
            screen.line(f"  Console      {screen.style(console, fg='cyan')}  (opens once; `up` prints another)")
    elif status.state is not ClusterState.ABSENT:
        screen.line(f"  Data         {status.folder}")
    screen.line()
    for command in _next_commands(status, further):
        screen.line(f"  {screen.style(command, fg='cyan')}")


def _row(component: ComponentStatus) -> tuple[Symbol, tuple[str, ...]]:
    age = duration((datetime.now(UTC) - component.since).total_seconds()) if component.since else ""
    remarks = [] if component.ready else [component.state.lower() if not component.pid else "not ready"]
    if component.restarts:
        remarks.append(f"restarted {component.restarts}x, last: {component.last_exit}")
    elif component.last_exit:
        remarks.append(component.last_exit)
    cells = (component.name, component.version, component.address, str(component.pid or ""), age, ", ".join(remarks))
    return (OK if component.ready else ATTENTION if component.pid else BAD), cells


def _nodes(nodes: Sequence[NodeSummary] | None) -> str:
    if nodes is None:
        return "unknown while the API server does not answer"
    if not nodes:
        return "none"
    ready = sum(node.ready for node in nodes)
    names = ", ".join(node.name for node in nodes[:_NODES_NAMED])
    more = f" and {len(nodes) - _NODES_NAMED} more" if len(nodes) > _NODES_NAMED else ""
    return f"{ready} of {len(nodes)} ready: {names}{more}"


def _next_commands(status: ClusterStatus, further: Sequence[str]) -> list[str]:
    option = "" if status.name == DEFAULT_NAME else f" --name {status.name}"
    if not status.state.alive:
        return [f"kubectl gpu up{option}"]
    folders = _folders_to_add(status.kubectl)
    path = [f'export PATH="{":".join(folders)}:$PATH"'] if folders else []
    known = os.environ.get("KUBECONFIG") == status.kubeconfig
    return [
        *path,
        *([] if known else [f"export KUBECONFIG={status.kubeconfig}"]),
        f"kubectl gpu simulate nodes --count 2 --profile H200-141{option}",
        "kubectl gpu status",
        *further,
        f"kubectl gpu down{option}",
    ]


def _folders_to_add(kubectl: str | None) -> list[str]:
    """The folders of kubectl and of this command that the shell does not find on PATH."""
    ours = Path(sys.executable).with_name("kubectl-gpu")
    programs = [Path(kubectl)] if kubectl else []
    programs += [ours] if ours.exists() else []
    # A tool such as `uv run` has put the virtual environment on PATH for this process only, not for the shell.
    path = os.pathsep.join(
        folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder != str(ours.parent)
    )
    return [str(program.parent) for program in programs if shutil.which(program.name, path=path) != str(program)]
