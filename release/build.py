"""Makes every artifact of a release, in one folder."""

import shutil
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from images import recipe
from images.lock import ARCHITECTURES
from images.sbom import LICENCE, Component, Subject, identifier, write_sbom
from images.wheels import build_wheel, locked_names

from gpu_control_plane.local.progress import Progress
from release import checksums
from release.changelog import notes_of
from release.chart import package_chart
from release.krew import PLATFORMS, PLUGIN, PYTHONS, Platform, manifest, pack_plugin
from release.module import module_files, pack_module
from release.push import Artifacts, ImageArchive
from release.source import PROJECT, Source

NOTES: Final = "RELEASE-NOTES.md"


def build(
    source: Source,
    into: Path,
    progress: Progress,
    *,
    url: str,
    architectures: Iterable[str] = ARCHITECTURES,
    platforms: Iterable[Platform] = PLATFORMS,
    pythons: Iterable[str] = PYTHONS,
) -> Artifacts:
    """Write the artifacts, and SHA256SUMS last: a folder with that list is complete."""
    into.mkdir(parents=True, exist_ok=True)
    checksums.remove_listed(into)
    notes = into / NOTES
    notes.write_text(_notes(source))
    with progress.step("Building the wheel"):
        wheel = _wheel(into)
        wheel_sbom = _wheel_sbom(wheel, source)
    with progress.step("Packaging the chart"):
        chart = package_chart(source, into)
    with progress.step("Packing the Deckhouse module"):
        module = pack_module(source, module_files(source.version), into)
    images = tuple(_image(arch, into, progress) for arch in architectures)
    plugins = []
    for platform in platforms:
        with progress.step(f"Packing kubectl gpu for {platform.name}"):
            plugins.append(pack_plugin(platform, wheel, source, into, pythons))
    krew = into / f"{PLUGIN}.yaml"
    krew.write_text(manifest(plugins, source.version, url))
    downloads = [notes, wheel, wheel_sbom, chart, module, krew]
    downloads += [path for each in plugins for path in (each.archive, each.sbom)]
    downloads += [path for image in images for path in (image.archive, image.sbom)]
    listed = into / checksums.NAME
    listed.write_text(checksums.checksums(downloads))
    return Artifacts(
        version=source.version,
        images=images,
        chart=chart,
        wheel=wheel,
        krew=krew,
        module=module,
        downloads=(*downloads, listed),
    )


def _notes(source: Source) -> str:
    changes = notes_of((PROJECT / "CHANGELOG.md").read_text(), source.version)
    return f"# {recipe.PRODUCT} {source.version}\n\nCommit {source.commit}, {source.created}.\n\n{changes}\n"


def _wheel(into: Path) -> Path:
    with tempfile.TemporaryDirectory() as folder:  # uv also leaves a .gitignore
        built = build_wheel(Path(folder))
        return Path(shutil.move(built, into / built.name))


def _wheel_sbom(wheel: Path, source: Source) -> Path:
    """What the wheel asks for, in the versions and with the sources that `uv.lock` names: those it was tested with."""
    path = wheel.with_name(f"{wheel.name}.spdx.json")
    lock = {package["name"]: package for package in tomllib.loads((PROJECT / "uv.lock").read_text())["package"]}
    components = []
    for package in (lock[name] for name in locked_names()):
        file = package.get("sdist") or package["wheels"][0]
        components.append(
            Component(
                id=identifier("python", package["name"]),
                name=package["name"],
                version=package["version"],
                sha256=file["hash"].removeprefix("sha256:"),
                licence=None,
                address=f"pkg:pypi/{package['name']}@{package['version']}",
                origin=file["url"],
            )
        )
    subject = Subject(
        component=Component(
            id="SPDXRef-wheel",
            name=recipe.PRODUCT,
            version=source.version,
            sha256=checksums.sha256(wheel),
            licence=LICENCE,
            address=f"pkg:pypi/{recipe.PRODUCT}@{source.version}",
        ),
        purpose="LIBRARY",
        relation="DEPENDS_ON",
    )
    title = f"{recipe.PRODUCT}-{source.version}-wheel"
    write_sbom(path, subject=subject, title=title, created=source.created, components=components)
    return path


def _image(arch: str, into: Path, progress: Progress) -> ImageArchive:
    built = recipe.build(arch, into, progress)
    return ImageArchive(arch=arch, archive=built.archive, sbom=built.sbom, digest=built.digest)
