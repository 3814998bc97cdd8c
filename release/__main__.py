"""`python -m release`: makes the artifacts of a release, or begins the next version."""

import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click
from images.errors import ImageError
from images.lock import ARCHITECTURES

from gpu_control_plane.local.errors import LocalError
from gpu_control_plane.local.progress import Lines, duration, megabytes
from release import build as building
from release import module as modules
from release.changelog import cut
from release.push import push_commands
from release.source import PROJECT, ReleaseError, read_source
from release.versions import PLACES, check_version, current_version, set_version

_MEGABYTE = 1_000_000
_REGISTRY = "registry.example.com/gpu"
_URL = "https://example.com/gpu-control-plane/releases/download/v{version}"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def release() -> None:
    """Make a release of the GPU control plane."""


@release.command()
@click.option(
    "--into", type=click.Path(path_type=Path), default="dist", show_default=True, help="Folder of the result."
)
@click.option("--registry", default=_REGISTRY, show_default=True, help="Where the printed commands push to.")
@click.option("--url", default=_URL, show_default=True, help="Folder from which krew will download the archives.")
@click.option("--arch", "architectures", multiple=True, type=click.Choice(ARCHITECTURES), help="Only these images.")
@click.option("--dirty", is_flag=True, help="Also with changes that are in no commit. For a trial.")
def build(*, into: Path, registry: str, url: str, architectures: tuple[str, ...], dirty: bool) -> None:
    """Write every artifact, and print the commands that push them.

    \b
    Examples:
      python -m release build
      python -m release build --registry registry.example.com/gpu --url https://example.com/gpu/v1.2.3
    """
    started = time.monotonic()
    source = read_source(current_version(), dirty=dirty)
    made = building.build(
        source,
        into,
        Lines(sys.stderr),
        url=url.format(version=source.version),
        architectures=architectures or ARCHITECTURES,
    )
    width = max(len(path.name) for path in made.downloads)
    for path in made.downloads:
        click.echo(f"{into}/{path.name:<{width}}  {_size(path.stat().st_size):>7}")
    click.echo(f"\nVersion {source.version} of commit {source.commit[:12]}, {duration(time.monotonic() - started)}.")
    click.echo(f"To publish it:\n\n{push_commands(made, registry)}")


@release.command()
@click.option(
    "--into", type=click.Path(path_type=Path), default="dist", show_default=True, help="Folder of the archive."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default="build/deckhouse-module",
    show_default=True,
    help="Where its files are put for reading, for werf and for Helm.",
)
@click.option(
    "--digest",
    "digests",
    multiple=True,
    metavar="IMAGE=DIGEST",
    help="Digest of an image that is in the module's registry; `ours=` stands for controller and agent. Repeatable.",
)
@click.option(
    "--library",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Deckhouse's library for Helm, as `helm pull` gets it: deckhouse_lib_helm-….tgz.",
)
def module(*, into: Path, folder: Path, digests: tuple[str, ...], library: Path | None) -> None:
    """Pack the Deckhouse module.

    \b
    Examples:
      python -m release module
      python -m release module --library deckhouse_lib_helm-1.71.11.tgz --digest ours=sha256:…
    """
    source = read_source(current_version(), dirty=True)
    known = modules.read_digests(digests)
    files = modules.module_files(source.version, known, library)
    into.mkdir(parents=True, exist_ok=True)
    modules.unpack_module(files, folder)
    archive = modules.pack_module(source, files, into)
    click.echo(f"{folder}\n{archive}  {_size(archive.stat().st_size)}")
    if not known:
        click.echo("It names no images: werf builds them from the folder, or name those you have by --digest.")
    if library is None:
        click.echo("It lacks Deckhouse's library, which it needs to be installed: see --library.")


@release.command()
@click.argument("version")
def bump(version: str) -> None:
    """Write the VERSION into every file that has it, and date the changelog's section. `make bump` also regenerates.

    \b
    Example:
      python -m release bump 1.2.3
    """
    check_version(version)
    changelog = PROJECT / "CHANGELOG.md"
    dated = cut(changelog.read_text(), version, datetime.now(UTC).date())
    for place, pattern in PLACES.items():
        file = PROJECT / place
        if not re.search(pattern, text := file.read_text()):
            raise ReleaseError(f"{place} has no version where one was expected.")
        file.write_text(set_version(text, pattern, version))
    changelog.write_text(dated)
    click.echo(f"{version} is in {', '.join([*PLACES, changelog.name])}.")


def _size(number: int) -> str:
    return megabytes(number) if number >= _MEGABYTE else f"{-(-number // 1000)} kB"


def main() -> int:
    try:
        release(standalone_mode=True)
    except (ReleaseError, ImageError, LocalError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
