"""Lets a namespace hold the pods of the agent and the operands, in clusters that enforce Pod Security Standards.

Those pods are privileged. A namespace whose level nobody has set gets the label that allows them; a level that somebody
has set is that person's decision, and is never changed.

Run as `python -m gpu_control_plane.installation.pod_security`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from gpu_control_plane.api.namespace import Namespace
from gpu_control_plane.installation.one_shot import run_job
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import Conflict, KubeError, NotFound

ENFORCE: Final = "pod-security.kubernetes.io/enforce"
PRIVILEGED: Final = "privileged"

_EXAMPLES: Final = """\b
Examples:
  python -m gpu_control_plane.installation.pod_security d8-gpu-operator
"""


class LevelRefuses(KubeError):
    """Somebody has set a level that refuses our pods."""


@click.command("pod-security", epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file.  [default: as kubectl finds it]")
@click.argument("namespaces", metavar="NAMESPACE…", nargs=-1, required=True)
def command(*, kubeconfig: Path | None, namespaces: tuple[str, ...]) -> None:
    """Let namespaces hold privileged pods, unless somebody has decided otherwise. Running it again is safe."""
    click.echo("\n".join(run_job(kubeconfig, lambda client: allow_privileged(client, namespaces))))


async def allow_privileged(client: Client, namespaces: Sequence[str]) -> list[str]:
    """Label each namespace that has no level; a sentence about each. `LevelRefuses` where one has another level."""
    return [f"namespace {name}: {await _allow(client, name)}" for name in namespaces]


async def check_level(client: Client, name: str) -> None:
    """`LevelRefuses` if somebody has set a level that refuses our pods in this namespace, should there be one: the API
    server would say so only in an Event of the agent's DaemonSet."""
    try:
        _check(await client.get(Namespace, name))
    except NotFound:
        return


async def _allow(client: Client, name: str) -> str:
    found = await client.get(Namespace, name)
    _check(found)
    if ENFORCE in found.metadata.labels:
        return f"it enforces «{PRIVILEGED}» already"
    labels = {"metadata": {"labels": {ENFORCE: PRIVILEGED}}}
    try:
        await client.patch(Namespace, name, labels, resource_version=found.metadata.resource_version)
    except Conflict:  # another writer was faster, maybe with a level
        return await _allow(client, name)
    return f"labelled {ENFORCE}={PRIVILEGED}"


def _check(namespace: Namespace) -> None:
    level, name = namespace.metadata.labels.get(ENFORCE, PRIVILEGED), namespace.name
    if level != PRIVILEGED:
        raise LevelRefuses(
            f"Pod Security refuses the agent and the operands in the namespace {name}: somebody has set it to enforce "
            f"«{level}». Change it with `kubectl label namespace {name} {ENFORCE}={PRIVILEGED} --overwrite`, or use "
            "another namespace."
        )


if __name__ == "__main__":
    command()
