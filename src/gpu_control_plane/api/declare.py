"""Brings the ClusterPolicy and the NVIDIADriver that somebody has described into a cluster that knows their kinds.

Helm cannot: it looks kinds up before it runs the job that installs their CRDs, and would delete the objects, with the
drivers that run by them, when a release goes. By server-side apply only the fields that are described are written,
whoever made the object; one that is no longer described is taken away.

Run as `python -m gpu_control_plane.api.declare`.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import click
import msgspec

from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.config import load_config
from gpu_control_plane.kube.errors import KubeError, NotFound
from gpu_control_plane.kube.objects import FieldManager

MANAGER: Final = FieldManager("gpu-control-plane-values")

_EXAMPLES: Final = """\b
Examples:
  python -m gpu_control_plane.api.declare \\
    '{"kind": "NVIDIADriver", "metadata": {"name": "default"}, "spec": {"default": true, "image": "driver"}}'
"""


class Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    labels: dict[str, str] = {}


class Declared(msgspec.Struct, frozen=True):
    """An object as somebody wants it."""

    kind: Literal["ClusterPolicy", "NVIDIADriver"]
    metadata: Meta
    spec: dict[str, Any]

    @property
    def type(self) -> type[StoredClusterPolicy | StoredNVIDIADriver]:
        return StoredClusterPolicy if self.kind == "ClusterPolicy" else StoredNVIDIADriver

    @property
    def name(self) -> str:
        return self.metadata.name


class _Json(click.ParamType[Declared]):
    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Declared:
        """A whole object of one of the two kinds."""
        try:
            return msgspec.json.decode(value, type=Declared)
        except msgspec.DecodeError as error:
            self.fail(f"{error}.", param, ctx)


@click.command("declare", epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file.  [default: as kubectl finds it]")
@click.argument("objects", metavar="OBJECT…", nargs=-1, required=True, type=_Json())
def command(*, kubeconfig: Path | None, objects: tuple[Declared, ...]) -> None:
    """Apply a ClusterPolicy or an NVIDIADriver, each given as JSON. Running it again is safe."""

    async def connect() -> list[str]:
        async with Client(load_config(kubeconfig)) as client:
            return await declare(client, objects)

    try:
        sentences = asyncio.run(connect())
    except KubeError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    click.echo("\n".join(sentences))


async def declare(client: Client, objects: Sequence[Declared]) -> list[str]:
    """Apply each of them, with a sentence about each."""
    return [f"{wanted.kind} {wanted.name}: {await _apply(client, wanted)}" for wanted in objects]


async def _apply(client: Client, wanted: Declared) -> str:
    before = await _generation(client, wanted)
    body = {"metadata": {"labels": wanted.metadata.labels}, "spec": wanted.spec}
    try:
        applied = await client.apply(wanted.type, wanted.name, body, manager=MANAGER)
    except NotFound as error:
        unknown = f"The cluster does not know {wanted.type.resource.qualified_name}"
        raise KubeError(f"{unknown}: install the CRDs first, as the chart does with crds.install.") from error
    if before is None:
        return "created"
    return "up to date" if applied.metadata.generation == before else "updated"


async def _generation(client: Client, wanted: Declared) -> int | None:
    """Which generation there is; None for an object that is not there."""
    try:
        return (await client.get(wanted.type, wanted.name)).metadata.generation
    except NotFound:
        return None


if __name__ == "__main__":
    command()
