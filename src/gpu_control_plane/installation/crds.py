"""Installs the CRDs and the namespace of the reports, and never an older CRD over a newer one.

Each CRD carries the release that installed it. A CRD of a newer release, or of another product, is left as it is, and
the answer says so. NodeFeature belongs to Node Feature Discovery: ours is for clusters without it.
ClusterPolicy and NVIDIADriver are NVIDIA's kinds, and those of Ray are KubeRay's: where their operator has brought
them, they stay as they are.

Run as `python -m gpu_control_plane.installation.crds`.
"""

import asyncio
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar, Final

import click

from gpu_control_plane import DEFAULT_NAMESPACE, __version__
from gpu_control_plane.api import DEFINITIONS, crd_manifest, nodefeature_definition, nvidia, ray
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.installation.kuberay_check import check_kuberay
from gpu_control_plane.installation.one_shot import run_in_cluster
from gpu_control_plane.installation.pod_security import check_level
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.crd import NAMES_ACCEPTED, CustomResourceDefinition, Definition
from gpu_control_plane.kube.discovery import serves
from gpu_control_plane.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from gpu_control_plane.kube.objects import Condition, FieldManager, Object, Resource
from gpu_control_plane.kube.times import utc_now

MANAGER: Final = FieldManager("gpu-control-plane-crds")

NODE_FEATURE: Final = nodefeature_definition.DEFINITION
INSTALLED: Final = (*DEFINITIONS, *nvidia.DEFINITIONS, *ray.DEFINITIONS, NODE_FEATURE)
GENERATED_MARK: Final = "controller-gen.kubebuilder.io/version"
"""Found on the CRDs that Node Feature Discovery, NVIDIA and KubeRay ship, also when one was put over ours."""

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:[-.]?(dev|a|alpha|b|beta|rc)[-.]?(\d+))?")
_POLL_SECONDS: Final = 0.05
_STAGES: Final = ("dev", "a", "b", "rc")
_EXAMPLES: Final = """\b
Examples:
  python -m gpu_control_plane.installation.crds               in a pod, or with $KUBECONFIG
  python -m gpu_control_plane.installation.crds --take-over   also those of another product
"""


class NotServed(KubeError):
    """A CRD was applied but the API server does not serve it."""


class _Namespace(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


@click.command("install", epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file.  [default: as kubectl finds it]")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Where agents publish their reports.")
@click.option("--take-over", is_flag=True, help="Replace CRDs of the same name that another product installed.")
@click.option("--ray", is_flag=True, help="Refuse where KubeRay is active, and our operator of Ray would not know.")
@click.option(
    "--kuberay-namespace",
    "kuberay_namespaces",
    multiple=True,
    help="A namespace in which KubeRay's operator is believed, beside the usual ones.",
)
@click.option("--timeout", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds to wait.")
def command(
    *,
    kubeconfig: Path | None,
    namespace: str,
    take_over: bool,
    ray: bool,
    kuberay_namespaces: tuple[str, ...],
    timeout: float,
) -> None:
    """Install the CRDs of this release, and return once the API server serves them.

    Running it again is safe. CRDs of a newer release are left alone. Nothing is installed where Pod Security would
    refuse the agent in the namespace.
    """
    try:
        believed = kuberay_namespaces if ray else None
        sentences = install_crds(kubeconfig, namespace, take_over=take_over, timeout=timeout, kuberay=believed)
    except KubeError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    click.echo("\n".join(sentences))


def install_crds(
    kubeconfig: Path | None,
    namespace: str = DEFAULT_NAMESPACE,
    *,
    take_over: bool = False,
    timeout: float = 30.0,
    kuberay: Collection[str] | None = None,
) -> list[str]:
    """Install the CRDs into the cluster of this kubeconfig; a sentence about each. For programs without a loop.

    Nothing is installed where Pod Security would refuse the agent in the namespace (`LevelRefuses`) or, with `kuberay`,
    the namespaces in which KubeRay's operator is believed, where it is active in another one (`UnbelievedKubeRay`).
    """

    async def work(client: Client) -> list[str]:
        await check_level(client, namespace)
        noticed = await check_kuberay(client, namespace, kuberay, utc_now()) if kuberay is not None else []
        return noticed + await install(client, namespace, take_over=take_over, timeout=timeout)

    return run_in_cluster(kubeconfig, work)


async def install(
    client: Client,
    namespace: str = DEFAULT_NAMESPACE,
    *,
    version: str = __version__,
    take_over: bool = False,
    timeout: float = 30.0,
) -> list[str]:
    """Apply the CRDs and return once they are served, with a sentence about each, and one about the namespace.

    `take_over` also replaces CRDs of the same name that another product installed, except Node Feature Discovery's.
    """
    outcomes = {}
    for definition in INSTALLED:
        outcomes[definition.name] = await _apply(client, definition, version, take_over=take_over)
    unserved = await asyncio.gather(*(_unserved(client, definition, timeout) for definition in INSTALLED))
    if any(unserved):
        raise NotServed(" ".join(filter(None, unserved)))
    outcomes[f"namespace {namespace}"] = await _ensure_namespace(client, namespace)
    return [f"{name}: {outcome}" for name, outcome in outcomes.items()]


async def _apply(client: Client, definition: Definition, version: str, *, take_over: bool, attempts: int = 5) -> str:
    """Apply one CRD unless the one in the cluster must stay. Reads it again after a conflict with another writer."""
    observed = await _find(client, definition.name)
    foreign = _of_feature_discovery(observed) if definition is NODE_FEATURE else None
    if reason := foreign or _left_alone(observed, version, take_over=take_over):
        return f"left alone. {reason}"
    try:
        applied = await client.apply(
            CustomResourceDefinition,
            definition.name,
            crd_manifest(definition, version),
            manager=MANAGER,
            resource_version=observed.metadata.resource_version if observed else None,
        )
    except Conflict:
        if attempts == 1:
            raise
        return await _apply(client, definition, version, take_over=take_over, attempts=attempts - 1)
    return _what_happened(observed, applied)


async def _find(client: Client, name: str) -> CustomResourceDefinition | None:
    try:
        return await client.get(CustomResourceDefinition, name)
    except NotFound:
        return None


def _left_alone(observed: CustomResourceDefinition | None, version: str, *, take_over: bool) -> str | None:
    """Why the CRD in the cluster must stay as it is, or None."""
    if observed is None:
        return None
    installed = observed.metadata.annotations.get(Annotation.CRD_VERSION, "")
    if (_order(installed) or ()) > (_order(version) or ()):
        return f"Release {installed} installed it, which is newer than {version}."
    if (_order(installed) is None or not ours(observed)) and not take_over:
        return "Another product installed it. Remove it, or install with take_over to replace it."
    return None


def ours(observed: CustomResourceDefinition) -> bool:
    """Whether we installed this CRD, and no other product has replaced it."""
    marks = observed.metadata.annotations
    return Annotation.CRD_VERSION in marks and GENERATED_MARK not in marks


def _of_feature_discovery(observed: CustomResourceDefinition | None) -> str | None:
    """That the NodeFeature CRD in the cluster is Node Feature Discovery's own, or None."""
    return None if observed is None or ours(observed) else "Node Feature Discovery installed it."


async def _ensure_namespace(client: Client, name: str) -> str:
    """Create the namespace of the agents' reports unless it exists."""
    try:
        await client.get(_Namespace, name)
    except NotFound:
        try:
            await client.create(_Namespace, {"metadata": {"name": name}})
        except AlreadyExists:
            return "up to date"
        return "created"
    return "up to date"


def _what_happened(observed: CustomResourceDefinition | None, applied: CustomResourceDefinition) -> str:
    if observed is None:
        return "created"
    if observed.metadata.generation == applied.metadata.generation:
        return "up to date"
    return "updated"


async def _unserved(client: Client, definition: Definition, timeout: float) -> str:
    """Wait until the API server serves the kind in our version; why it does not, if it does not.

    That takes milliseconds and nothing announces it: the condition Established is set earlier, and stays while another
    version of the CRD is installed.
    """
    try:
        async with asyncio.timeout(timeout):
            while not await serves(client, definition.resource):  # noqa: ASYNC110 - no event announces it
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        seen = await _find(client, definition.name)
        names = seen.condition(NAMES_ACCEPTED) if seen is not None else None
        why = names.message if names is not None and not _holds(names) else "The API server's log says why"
        return f"{definition.name} was applied, but the API server does not serve it after {timeout:g} s. {why}."
    return ""


def _holds(condition: Condition | None) -> bool:
    return condition is not None and condition.status == "True"


def _order(version: str) -> tuple[int, ...] | None:
    """A release as numbers that compare; None for a text that names no release. A pre-release comes before it."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return None
    major, minor, patch, stage, number = match.groups()
    rank = _STAGES.index({"alpha": "a", "beta": "b"}.get(stage, stage)) if stage else len(_STAGES)
    return int(major), int(minor), int(patch), rank, int(number or 0)


if __name__ == "__main__":
    command()
