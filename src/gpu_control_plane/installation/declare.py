"""Creates or updates the ClusterPolicy and the NVIDIADriver that the chart's values describe.

Helm cannot do it: it looks kinds up before it runs the job that installs their CRDs, and would delete the objects, with
the drivers that run by them, when a release is uninstalled. An object that exists keeps its metadata, and its spec
becomes the described one. Server-side apply would not do: it turns a section that has become empty into null.

Run as `python -m gpu_control_plane.installation.declare`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import click
import msgspec

from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.installation.one_shot import run_job
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from gpu_control_plane.kube.merge_patch import merge_patch

_ATTEMPTS: Final = 5
_EXAMPLES: Final = """\b
Examples:
  python -m gpu_control_plane.installation.declare \\
    '{"kind": "NVIDIADriver", "metadata": {"name": "default"}, "spec": {"image": "driver"}}'
"""


class Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    labels: dict[str, str] = {}


class Declared(msgspec.Struct, frozen=True):
    """An object as the values describe it."""

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
    """Create or update ClusterPolicies and NVIDIADrivers, each given as JSON. Running it again is safe."""
    click.echo("\n".join(run_job(kubeconfig, lambda client: declare(client, objects))))


async def declare(client: Client, objects: Sequence[Declared]) -> list[str]:
    """Create or update each of them; a sentence about each."""
    return [f"{wanted.kind} {wanted.name}: {await _create_or_update(client, wanted)}" for wanted in objects]


async def _create_or_update(client: Client, wanted: Declared, attempts: int = _ATTEMPTS) -> str:
    """Create or update one object. Reads it again after a conflict with another writer."""
    try:
        live = await _find(client, wanted)
        if live is None:
            await _create(client, wanted)
            return "created"
        written = await client.patch(
            wanted.type, wanted.name, patch_of(live, wanted), resource_version=live.metadata.resource_version
        )
    except (AlreadyExists, Conflict):
        if attempts == 1:
            raise
        return await _create_or_update(client, wanted, attempts - 1)
    return "up to date" if written.metadata.generation == live.metadata.generation else "updated"


async def _find(client: Client, wanted: Declared) -> StoredClusterPolicy | StoredNVIDIADriver | None:
    try:
        return await client.get(wanted.type, wanted.name)
    except NotFound:
        return None


async def _create(client: Client, wanted: Declared) -> None:
    try:
        await client.create(wanted.type, {"metadata": msgspec.to_builtins(wanted.metadata), "spec": wanted.spec})
    except NotFound as error:
        unknown = f"The cluster does not know {wanted.type.resource.qualified_name}"
        raise KubeError(f"{unknown}: install the CRDs first, as the chart does with crds.install.") from error


def patch_of(live: StoredClusterPolicy | StoredNVIDIADriver, wanted: Declared) -> dict[str, Any]:
    """The merge patch that makes the spec exactly the wanted one, and adds labels."""
    spec = msgspec.json.decode(live.spec, type=dict[str, Any])
    return {"metadata": {"labels": wanted.metadata.labels}, "spec": merge_patch(spec, wanted.spec)}


if __name__ == "__main__":
    command()
