"""The commands that bring a release to where users get it from. They are printed, never run: they need your logins."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import yaml
from images.recipe import PRODUCT

from release.module import MODULE

CHANNEL: Final = "stable"
"""The release channel that Deckhouse follows unless it is told of another."""


class ImageArchive(msgspec.Struct, frozen=True, kw_only=True):
    arch: str
    archive: Path
    sbom: Path
    digest: str


class Artifacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was made, by what has to be done with it."""

    version: str
    images: tuple[ImageArchive, ...]
    chart: Path
    wheel: Path
    krew: Path
    module: Path | None
    downloads: tuple[Path, ...]
    """What users download as it is."""


def push_commands(made: Artifacts, registry: str) -> str:
    """A shell script, with the registry as a variable."""
    return "\n".join([f"REGISTRY={registry}", *_images(made), *_others(made)]) + "\n"


def _images(made: Artifacts) -> Iterator[str]:
    name = f"$REGISTRY/{PRODUCT}"
    for image in made.images:
        yield f"skopeo copy oci-archive:{image.archive} docker://{name}:{made.version}-{image.arch}"
    if made.images:
        digests = " ".join(f"-m {name}@{image.digest}" for image in made.images)
        yield f"crane index append {digests} -t {name}:{made.version}"
    for image in made.images:
        about = f"--artifact-type application/spdx+json {name}@{image.digest}"
        yield f"oras attach {about} {image.sbom}:application/spdx+json"


def _others(made: Artifacts) -> Iterator[str]:
    yield f"helm push {made.chart} oci://$REGISTRY/charts"
    yield from _module(made)
    yield f"uv publish {made.wheel}"
    yield f"gh release create v{made.version} --title v{made.version} --notes-file {_notes(made.downloads)} \\"
    yield from (f"  {path}{' \\' if path != made.downloads[-1] else ''}" for path in made.downloads)
    yield f"# krew: a pull request to krew-index that adds {made.krew} as plugins/gpu.yaml"


def _module(made: Artifacts) -> Iterator[str]:
    """Deckhouse takes the module's images by digest from the module's own repository, so they go there first, and the
    archive is made anew with their digest and Deckhouse's library: beside the artifacts, whose checksums are listed.

    Which version a channel has is its tag beside the release images, and which modules a source has are the tags of the
    source itself: that comes last, when there is all that it leads to."""
    if made.module is None or not made.images:
        return
    source, version = "$REGISTRY/modules", f"v{made.version}"
    module = f"{source}/{PRODUCT}"
    yield f"crane copy $REGISTRY/{PRODUCT}:{made.version} {module}:image-{made.version}"
    library: dict[str, str] = yaml.safe_load((MODULE / "Chart.yaml").read_text())["dependencies"][0]
    yield f"helm pull {library['name']} --repo {library['repository']} --version {library['version']}"
    digest = f"--digest ours=$(crane digest {module}:image-{made.version})"
    yield f'make deckhouse-module FLAGS="--into build --library {library["name"]}-{library["version"]}.tgz {digest}"'
    yield f"crane append --new_layer build/{made.module.name} --new_tag {module}:{version}"
    yield "tar -C build/deckhouse-module -cf build/module-release.tar module.yaml version.json"
    yield f"crane append --new_layer build/module-release.tar --new_tag {module}/release:{version}"
    yield f"crane tag {module}/release:{version} {CHANNEL}"
    yield f'crane append --oci-empty-base --new_layer "" --new_tag {source}:{PRODUCT}'


def _notes(downloads: Sequence[Path]) -> Path:
    return next(path for path in downloads if path.name == "RELEASE-NOTES.md")
