"""`kubectl krew install gpu`: an archive for each platform, and the manifest by which krew finds them.

krew runs no installer, so an archive holds the program with all packages of `uv.lock` and a launcher that needs nothing
but a Python. Extension modules carry the version of their Python in their names; those for several Pythons therefore
lie side by side in one folder, and everything else is there once.
"""

import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from images.recipe import PRODUCT
from images.sbom import LICENCE, Component, Subject, identifier, python_components, write_sbom
from images.wheels import Distribution, install_locked

from release.archives import File, folder_files, pack
from release.checksums import sha256
from release.source import PROJECT, ReleaseError, Source

PLUGIN: Final = "gpu"
PROGRAM: Final = "kubectl-gpu"
COMPLETION: Final = "kubectl_complete-gpu"
PYTHONS: Final = ("3.12", "3.13", "3.14")


class Platform(msgspec.Struct, frozen=True):
    """A platform as Go calls it, and as uv does."""

    os: str
    arch: str
    uv: str

    @property
    def name(self) -> str:
        return f"{self.os}-{self.arch}"


PLATFORMS: Final = (
    Platform("linux", "amd64", "x86_64-manylinux_2_28"),
    Platform("linux", "arm64", "aarch64-manylinux_2_28"),
    Platform("darwin", "arm64", "aarch64-apple-darwin"),
)
"""No Macs with Intel processors: the cryptography package is published without a wheel for them."""


class KrewArchive(msgspec.Struct, frozen=True, kw_only=True):
    platform: Platform
    archive: Path
    sbom: Path


def pack_plugin(
    platform: Platform, wheel: Path, source: Source, into: Path, pythons: Iterable[str] = PYTHONS
) -> KrewArchive:
    """Write the archive of a platform, and the list of what is in it."""
    title = f"{PROGRAM}-{source.version}-{platform.name}"
    archive, sbom = into / f"{title}.tar.gz", into / f"{title}.spdx.json"
    with tempfile.TemporaryDirectory() as folder:
        installed = [_installed(platform, python, Path(folder)) for python in pythons]
    packages = merged(files for files, _ in installed) | _wheel_files(wheel)
    launcher = File((PROJECT / "release/launcher.sh").read_bytes(), program=True)
    files = {PROGRAM: launcher, COMPLETION: launcher, "LICENSE": File((PROJECT / "LICENSE").read_bytes())}
    pack(archive, files | {f"lib/{name}": file for name, file in packages.items()}, int(source.time.timestamp()))
    subject = Subject(
        component=Component(
            id="SPDXRef-archive",
            name=PRODUCT,
            version=source.version,
            sha256=sha256(archive),
            licence=LICENCE,
            address=f"pkg:generic/{archive.name}@{source.version}",
        ),
        purpose="ARCHIVE",
    )
    contained = list(_components(found for _, found in installed))
    write_sbom(sbom, subject=subject, title=title, created=source.created, components=contained)
    return KrewArchive(platform=platform, archive=archive, sbom=sbom)


def merged(folders: Iterable[Mapping[str, File]]) -> dict[str, File]:
    """The packages of several Pythons in one folder. Two contents of one name are refused: one of them would be wrong.

    What a package says about the wheel it came from may differ; nothing here reads it.
    """
    result: dict[str, File] = {}
    for files in folders:
        for name, file in files.items():
            if result.setdefault(name, file) != file and ".dist-info/" not in name:
                raise ReleaseError(f"{name} differs between Pythons: it cannot be in one archive for all of them.")
    return result


def manifest(archives: list[KrewArchive], version: str, url: str) -> str:
    """The plugin as krew's index wants it. `url` is the folder from which the archives can be downloaded."""
    plugin: dict[str, Any] = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": PLUGIN},
        "spec": {
            "version": f"v{version}",
            "homepage": url.rstrip("/"),
            "shortDescription": "Look after GPUs: pools, cards, who uses them, and why a pod waits",
            "description": (
                "Shows and governs the GPUs of a cluster that runs the GPU control plane: what needs a person, cards, "
                "pools and their users, why a pod gets no card, GPU-hours, checks with fixes.\n"
            ),
            "caveats": (
                "This plugin is a Python program: Python 3.12, 3.13 or 3.14 has to be on PATH.\n"
                f"For completion, link {COMPLETION}, which krew does not do:\n"
                f'  ln -s "$(dirname "$(readlink ~/.krew/bin/{PROGRAM})")/{COMPLETION}" ~/.krew/bin/\n'
            ),
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": each.platform.os, "arch": each.platform.arch}},
                    "uri": f"{url.rstrip('/')}/{each.archive.name}",
                    "sha256": sha256(each.archive),
                    "bin": PROGRAM,
                }
                for each in archives
            ],
        },
    }
    return yaml.safe_dump(plugin, sort_keys=False, width=120)


def _installed(platform: Platform, python: str, scratch: Path) -> tuple[dict[str, File], list[Distribution]]:
    place = scratch / python
    found = install_locked(place, scratch, python=python, platform=platform.uv)
    return folder_files(place), found


def _wheel_files(wheel: Path) -> dict[str, File]:
    with zipfile.ZipFile(wheel) as content:
        return {name: File(content.read(name)) for name in content.namelist() if not name.endswith("/")}


def _components(installed: Iterator[list[Distribution]]) -> Iterator[Component]:
    """Every wheel that went in: one for all Pythons, or one for each."""
    wheels = {(each.name, each.sha256): each for found in installed for each in found}
    numbers: dict[str, int] = {}
    for (name, _), component in zip(wheels, python_components(list(wheels.values())), strict=True):
        numbers[name] = numbers.get(name, 0) + 1
        yield msgspec.structs.replace(component, id=identifier("python", f"{name}-{numbers[name]}"))
