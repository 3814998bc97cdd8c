"""The real image: built twice to the same bytes, valid, small, and complete for both processors."""

import csv
import hashlib
import json
import tarfile
from pathlib import Path

import pytest
from images.lock import ARCHITECTURES, read_lock
from images.recipe import Built, lay_out
from images.wheels import PLACE

from gpu_control_plane.local.progress import Quiet
from image.building import build_here, shared_image
from image.elf import Elf, read_elf
from image.spdx import faults

MOST_COMPRESSED = 120_000_000
pytestmark = pytest.mark.timeout(600)  # a build takes 20 s of a processor, and other tests use them too


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return shared_image(tmp_path_factory)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def layout(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Path]]:
    """The folders of the layers, for each processor."""
    laid = lay_out(request.param, tmp_path_factory.mktemp("layout"), Quiet())
    return request.param, list(laid.folders.values())


def test_two_builds_are_the_same_bytes(image: Built, tmp_path: Path) -> None:
    again = build_here(tmp_path)
    assert again.digest == image.digest
    assert _digest(again.archive) == _digest(image.archive)
    assert again.sbom.read_bytes() == image.sbom.read_bytes()


def test_the_image_is_small(image: Built) -> None:
    assert image.archive.stat().st_size < MOST_COMPRESSED


def test_the_list_of_contents_is_valid_and_complete(image: Built) -> None:
    document = json.loads(image.sbom.read_text())
    assert faults(document) == []
    names = {package["name"] for package in document["packages"]}
    assert {"python3", "libc6", "ca-certificates", "grpcio", "aiohttp", "gpu-control-plane"} <= names
    assert not names & {"pytest", "mypy", "ruff", "hypothesis"}


def test_nothing_in_it_is_writable_or_privileged(image: Built) -> None:
    with tarfile.open(image.archive) as archive:
        described = archive.extractfile("manifest.json")
        assert described is not None
        for path in json.loads(described.read())[0]["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(path)) as layer:
                for entry in layer:
                    assert entry.issym() or entry.mode in {0o644, 0o755} or entry.name in {"tmp", "var/tmp"}


def test_every_library_that_anything_asks_for_is_there(layout: tuple[str, list[Path]]) -> None:
    architecture, folders = layout
    programs = _programs(folders)
    assert {elf.architecture for elf in programs.values()} == {architecture}
    missing = {(path.name, name) for path, elf in programs.items() for name in elf.needed} - _found(folders, programs)
    assert missing == set()


def test_every_recorded_package_has_its_licence_and_its_entry(layout: tuple[str, list[Path]]) -> None:
    architecture, (debian, *_) = layout
    status = (debian / "var/lib/dpkg/status").read_text()
    for package in read_lock(architecture).packages:
        assert f"Package: {package.name}\n" in status
        assert (debian / "usr/share/doc" / package.name / "copyright").exists()


def test_our_package_is_there_without_tests_and_tools(layout: tuple[str, list[Path]]) -> None:
    _, (_, wheels, product) = layout
    assert (product / PLACE / "gpu_control_plane/controller.py").exists()
    assert not {"pytest", "mypy", "tests", "bin"} & {path.name for path in (wheels / PLACE).iterdir()}


def test_wheels_list_what_is_there_and_nothing_of_this_machine(layout: tuple[str, list[Path]]) -> None:
    _, (_, wheels, _) = layout
    for record in (wheels / PLACE).glob("*.dist-info/RECORD"):
        for path, *_ in csv.reader(record.read_text().splitlines()):
            assert (wheels / PLACE / path).is_file()
            assert not path.startswith(("..", "/"))


def _programs(folders: list[Path]) -> dict[Path, Elf]:
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path: elf for path in files if (elf := read_elf(path))}


def _found(folders: list[Path], programs: dict[Path, Elf]) -> set[tuple[str, str]]:
    """What the loader would find: in the system's folder, or beside the library that needs it, as in wheels."""
    system = {path.name for folder in folders for path in folder.glob("usr/lib/*-linux-gnu/*.so*")}
    return {
        (path.name, name)
        for path, elf in programs.items()
        for name in elf.needed
        if name in system or (path.parent / name).exists()
    }


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
