"""`python -m images`: builds the image, unpacks it for a Dockerfile, or records Debian's packages anew."""

import io
import sys
import tarfile
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from gpu_control_plane.local.errors import LocalError
from gpu_control_plane.local.platforms import this_platform
from gpu_control_plane.local.progress import Lines, duration, megabytes
from images import recipe
from images.errors import ImageError
from images.lock import ARCHITECTURES, SUITE, Lock, read_lock, write_lock
from images.resolve import resolve

_FOLDER = Path("build/image")
_architecture = click.option(
    "--arch",
    type=click.Choice(ARCHITECTURES),
    default=lambda: this_platform().arch,
    help="Processor of the image.  [default: this machine's]",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def images() -> None:
    """Make the container image, without a container engine."""


@images.command()
@_architecture
@click.option("--name", default=recipe.NAME, show_default=True, help="What the image is called when it is imported.")
@click.option(
    "--into", type=click.Path(path_type=Path), default=_FOLDER, show_default=True, help="Folder of the result."
)
def build(arch: str, name: str, into: Path) -> None:
    """Write the image as an OCI archive, and its list of contents (SPDX) beside it."""
    started = time.monotonic()
    built = recipe.build(arch, into, Lines(sys.stderr), name)
    size = built.archive.stat().st_size
    click.echo(f"{built.archive}  {megabytes(size)}, {duration(time.monotonic() - started)}")
    click.echo(f"{built.sbom}")
    click.echo(f"{name} {built.digest}")


@images.command()
@_architecture
@click.argument("folder", type=click.Path(path_type=Path))
def unpack(arch: str, folder: Path) -> None:
    """Write the image's files to a folder, layer over layer. Root's ownership takes root."""
    for layer in recipe.make(arch, Lines(sys.stderr)).layers:
        with tarfile.open(fileobj=io.BytesIO(layer.content)) as tar:
            tar.extractall(folder, filter="fully_trusted")  # noqa: S202 - written a moment ago by ourselves


@images.command()
def lock() -> None:
    """Record the packages that Debian serves today, for every architecture."""
    progress = Lines(sys.stderr)
    for architecture in ARCHITECTURES:
        with progress.step(f"Asking Debian for {SUITE} packages on {architecture}") as step:
            step.detail("apt resolves them")
            packages = resolve(architecture)
        try:
            before = read_lock(architecture)
        except ImageError:
            before = Lock(suite=SUITE, architecture=architecture, resolved=datetime.fromtimestamp(0, UTC), packages=())
        after = before.renewed(packages, datetime.now(UTC))
        write_lock(after)
        changed = len(set(after.packages) - set(before.packages))
        click.echo(f"{architecture}: {len(packages)} packages, {changed} of them new or changed")


def main() -> int:
    try:
        images(standalone_mode=True)
    except (ImageError, LocalError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
