"""Takes back what agents wrote into the files of container runtimes, after they have ended.

A short privileged pod does it on each node whose agent has reported such files. It enters the node's file system and
runs the same command that a person would. A node that is away is named, with the command for later.

Run as `python -m gpu_control_plane.installation.runtime_undo`.
"""

import asyncio
import hashlib
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import click
import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import AGENT, COMPONENT_LABEL, NAME_LABEL, PRODUCT
from gpu_control_plane.installation.one_shot import run_job
from gpu_control_plane.installation.pods_ended import await_end
from gpu_control_plane.kube import Client, Object, Resource, Selection
from gpu_control_plane.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound

_COMPONENT: Final = "runtime-undo"
_AGENTS: Final = f"{NAME_LABEL}={PRODUCT},{COMPONENT_LABEL}={AGENT}"
_UNDO_PODS: Final = f"{NAME_LABEL}={PRODUCT},{COMPONENT_LABEL}={_COMPONENT}"
_POLL_SECONDS: Final = 0.5
_EXAMPLES: Final = """\b
Examples:
  python -m gpu_control_plane.installation.runtime_undo --image registry.example/gpu-control-plane:1.0
  python -m gpu_control_plane.installation.runtime_undo --image … --node worker-7

\b
Exit status:
  0  nothing is left on any node, or with --lenient whatever is left
  1  something is left, or could not be found out; the output says where and why
"""


class _Terminated(msgspec.Struct, frozen=True):
    message: str = ""


class _State(msgspec.Struct, frozen=True):
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, frozen=True):
    state: _State = _State()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    container_statuses: tuple[_ContainerStatus, ...] = ()


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(Object, frozen=True):
    """A pod of ours, and how it ended."""

    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def said(self) -> str:
        """The end of what it printed, if it failed; else why it is as it is."""
        ends = (each.state.terminated for each in self.status.container_statuses)
        told = next((end.message.strip() for end in ends if end is not None and end.message), "")
        return told or self.status.message or self.status.reason or f"its pod is {self.status.phase}"


class PodSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the pods are made."""

    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    restart: bool = True
    """Whether the container runtime is restarted where that is needed."""


@click.command("runtime-undo", epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file.  [default: as kubectl finds it]")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Where our programs ran.")
@click.option("--image", required=True, help="The image of the agent.")
@click.option(
    "--pull-policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    default="IfNotPresent",
    show_default=True,
    help="When it is pulled.",
)
@click.option("--pull-secret", "pull_secrets", multiple=True, help="A Secret that opens its registry; may be repeated.")
@click.option("--node", "nodes", multiple=True, help="Only this node, whatever was reported; may be repeated.")
@click.option("--restart/--no-restart", default=True, show_default=True, help="Restart the runtime where that is due.")
@click.option("--lenient", is_flag=True, help="End with 0 whatever is left: for hooks, which must not stop there.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=90.0,
    show_default=True,
    help="Seconds to wait until agents have ended, and again until the pods have.",
)
def command(
    *,
    kubeconfig: Path | None,
    namespace: str,
    image: str,
    pull_policy: str,
    pull_secrets: tuple[str, ...],
    nodes: tuple[str, ...],
    restart: bool,
    lenient: bool,
    timeout: float,
) -> None:
    """Take back what agents wrote into the files of container runtimes, on every node that has it."""
    settings = PodSettings(image=image, pull_policy=pull_policy, pull_secrets=pull_secrets, restart=restart)

    left = run_job(
        kubeconfig,
        lambda client: undo_runtimes(client, namespace, settings, only=nodes, timeout=timeout, report=click.echo),
    )
    if left:
        options = " ".join(f"--node {node}" for node in left)
        click.echo(
            f"{len(left)} of the nodes still hold entries of ours. When they are back, run this where an "
            "administrator's kubeconfig is:\n"
            f"  python -m gpu_control_plane.installation.runtime_undo --namespace {namespace} --image {image} {options}"
        )
    sys.exit(1 if left and not lenient else 0)


async def undo_runtimes(
    client: Client,
    namespace: str,
    settings: PodSettings,
    *,
    only: Collection[str] = (),
    timeout: float,
    report: Callable[[str], None],
) -> Mapping[str, str]:
    """Run the pods and remove them; on which nodes something is left, and why. `report` gets a sentence about each."""
    agents = await await_end(client, Selection(namespace, labels=_AGENTS), timeout) if not only else 0
    if agents:
        report(f"{agents} agents have not ended: what they write from now on stays.")
    ready = {node.name: node.ready for node in await client.list(Node)}
    wanted = set(only) or await _reported(client)
    if not wanted:
        report("No agent has reported that it wrote into the files of a container runtime.")
    left = {name: "the node is not ready" for name in wanted if ready.get(name) is False}
    gone = [name for name in sorted(wanted) if name not in ready]
    if gone:
        report(f"No longer in the cluster, and left as they are: {', '.join(gone)}.")
    names = [name for name in sorted(wanted) if ready.get(name)]
    made = []
    try:
        for name in names:
            if refusal := await _create(client, namespace, undo_pod(name, settings, timeout)):
                left[name] = refusal
            else:
                made.append(name)
        left |= await _await_pods(client, namespace, made, timeout)
    finally:
        for name in made:
            await _delete(client, namespace, pod_name(name))
    for name in sorted({*names, *left}):
        report(f"{name}: {left[name]}" if name in left else f"{name}: taken back.")
    return left


async def _reported(client: Client) -> set[str]:
    try:
        states = await client.list(GPUNodeState)
    except NotFound:  # Without the kind there are no reports.
        return set()
    return {state.name for state in states if state.status.agent is not None and state.status.agent.runtime_configured}


def pod_name(node: str) -> str:
    """Names of nodes may be too long for a part of another name."""
    return f"gpu-{_COMPONENT}-{hashlib.sha256(node.encode()).hexdigest()[:12]}"


def undo_pod(node: str, settings: PodSettings, timeout: float) -> dict[str, Any]:
    """A pod that undoes on one node what its agent wrote. It is root there: so was the agent."""
    undo = ["python3", "-P", "-m", "gpu_control_plane.agent.runtimes", "undo", "--by-agent", "--host-root", "/host"]
    return {
        "metadata": {"name": pod_name(node), "labels": {NAME_LABEL: PRODUCT, COMPONENT_LABEL: _COMPONENT}},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": max(1, int(timeout)),
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostPID": True,  # Without systemd a restart is a signal.
            "tolerations": [{"operator": "Exists"}],
            "imagePullSecrets": [{"name": name} for name in settings.pull_secrets],
            "containers": [
                {
                    "name": "undo",
                    "image": settings.image,
                    "imagePullPolicy": settings.pull_policy,
                    "command": [*undo, "--restart" if settings.restart else "--no-restart"],
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "securityContext": {"privileged": True, "runAsUser": 0, "readOnlyRootFilesystem": True},
                    "volumeMounts": [{"name": "host", "mountPath": "/host", "mountPropagation": "HostToContainer"}],
                }
            ],
            "volumes": [{"name": "host", "hostPath": {"path": "/", "type": "Directory"}}],
        },
    }


async def _create(client: Client, namespace: str, pod: dict[str, Any]) -> str | None:
    """Make the pod, or say why the cluster refuses it: a quota or a policy there may, and the clean-up that comes after
    this has to come all the same. A pod that an earlier attempt left behind has done its part, or will."""
    try:
        await client.create(_Pod, pod, namespace)
    except AlreadyExists:
        return None
    except (BadRequest, Forbidden, Invalid) as error:
        return f"its pod is refused: {error}"
    return None


async def _await_pods(client: Client, namespace: str, nodes: Collection[str], timeout: float) -> dict[str, str]:
    """Wait until the pods have ended; the nodes whose pod did not succeed, and why."""
    deadline = time.monotonic() + timeout
    while nodes:
        pods = {pod.spec.node_name: pod for pod in await client.list(_Pod, Selection(namespace, labels=_UNDO_PODS))}
        late = time.monotonic() >= deadline
        running = [node for node in nodes if node in pods and pods[node].status.phase not in ("Succeeded", "Failed")]
        if late or not running:
            missing = _Pod()
            ended = {node: pods.get(node, missing) for node in nodes}
            return {node: pod.said for node, pod in ended.items() if pod.status.phase != "Succeeded"}
        await asyncio.sleep(_POLL_SECONDS)
    return {}


async def _delete(client: Client, namespace: str, name: str) -> None:
    try:
        await client.delete(_Pod, name, namespace)
    except NotFound:
        return


if __name__ == "__main__":
    command()
