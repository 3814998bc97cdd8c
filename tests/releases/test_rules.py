"""What a release says about itself: one version everywhere, a changelog, checksums, commands that push it."""

import subprocess
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from release.archives import File, pack, unpacked
from release.changelog import UNRELEASED, cut, notes_of, sections
from release.checksums import NAME, checksums, remove_listed
from release.krew import PLATFORMS, KrewArchive, manifest, merged
from release.push import Artifacts, ImageArchive, push_commands
from release.source import PROJECT, ReleaseError
from release.versions import PLACES, check_version, current_version, set_version, written_versions

CHANGELOG = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.1.0 - 2026-01-02\n\n- first\n"


def test_every_file_has_the_version_of_pyproject() -> None:
    assert written_versions() == {place: {current_version()} for place in PLACES}


@pytest.mark.parametrize("place", PLACES)
def test_a_bump_changes_the_version_and_nothing_else(place: str) -> None:
    text, pattern = (PROJECT / place).read_text(), PLACES[place]
    bumped = set_version(text, pattern, "9.8.7")
    before = set(text.splitlines())
    changed = [line for line in bumped.splitlines() if line not in before]
    assert changed
    assert all("9.8.7" in line for line in changed)
    assert set_version(bumped, pattern, current_version()) == text


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3rc1", "1.2.3-rc.1", ""])
def test_a_version_that_python_and_helm_write_differently_is_refused(version: str) -> None:
    with pytest.raises(ReleaseError, match="three numbers"):
        check_version(version)


def test_notes_are_the_section_of_the_version() -> None:
    assert notes_of(CHANGELOG, "0.1.0") == "- first"
    assert notes_of(CHANGELOG, "0.2.0") == "- new"


def test_a_release_without_notes_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"says nothing about 0\.2\.0"):
        notes_of("# Changelog\n\n## Unreleased\n", "0.2.0")
    with pytest.raises(ReleaseError, match="nothing under"):
        cut("# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-01-02\n\n- first\n", "0.2.0", date(2026, 3, 4))


def test_a_cut_dates_what_was_unreleased() -> None:
    after = sections(cut(CHANGELOG, "0.2.0", date(2026, 3, 4)))
    assert after == {UNRELEASED: "", "0.2.0": "- new", "0.1.0": "- first"}


def test_our_own_changelog_can_be_released() -> None:
    assert notes_of((PROJECT / "CHANGELOG.md").read_text(), current_version())


def test_archives_are_the_same_bytes(tmp_path: Path) -> None:
    files = {"b/text": File(b"text"), "a/program": File(b"#!/bin/sh\n", program=True)}
    pack(tmp_path / "one.tar.gz", files, 1_700_000_000)
    pack(tmp_path / "two.tar.gz", dict(reversed(files.items())), 1_700_000_000)
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    assert unpacked(tmp_path / "one.tar.gz") == files


def test_packages_of_several_pythons_share_a_folder() -> None:
    one, other = (
        {"a.py": File(b"a"), "a.cpython-312.so": File(b"12")},
        {"a.py": File(b"a"), "a.cpython-313.so": File(b"13")},
    )
    assert merged(iter([one, other])).keys() == {"a.py", "a.cpython-312.so", "a.cpython-313.so"}


def test_a_file_that_differs_between_pythons_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"a\.py differs"):
        merged(iter([{"a.py": File(b"a")}, {"a.py": File(b"b")}]))


def test_checksums_are_what_sha256sum_reads(tmp_path: Path) -> None:
    for name in ("b", "a", "not-ours"):
        (tmp_path / name).write_text(name)
    (tmp_path / NAME).write_text(checksums([tmp_path / "b", tmp_path / "a"]))
    checked = subprocess.run(
        ["/usr/bin/env", "sha256sum", "--check", NAME], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert checked.stdout == "a: OK\nb: OK\n"
    remove_listed(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["not-ours"]


def test_the_krew_manifest_names_an_archive_for_each_platform(tmp_path: Path) -> None:
    """With the fields that krew requires, and a version as it wants it."""
    archives = []
    for platform in PLATFORMS:
        archive = tmp_path / f"{platform.name}.tar.gz"
        archive.write_text(platform.name)
        archives.append(KrewArchive(platform=platform, archive=archive, sbom=tmp_path / "sbom"))
    plugin = yaml.safe_load(manifest(archives, "1.2.3", "https://example.com/v1.2.3/"))
    assert (plugin["kind"], plugin["metadata"], plugin["spec"]["version"]) == ("Plugin", {"name": "gpu"}, "v1.2.3")
    assert len(plugin["spec"]["shortDescription"]) <= 80
    for platform, made in zip(PLATFORMS, plugin["spec"]["platforms"], strict=True):
        assert made["selector"] == {"matchLabels": {"os": platform.os, "arch": platform.arch}}
        assert made["uri"] == f"https://example.com/v1.2.3/{platform.name}.tar.gz"
        assert made["bin"] == "kubectl-gpu"
        assert len(made["sha256"]) == 64


def test_publishing_the_module_leaves_the_artifacts_as_their_checksums_say() -> None:
    commands = _commands_for_a_module()
    [packing] = [line for line in commands if line.startswith("make deckhouse-module")]
    [pulling] = [line for line in commands if line.startswith("helm pull")]
    assert "--into build " in packing
    assert pulling.split()[2] + "-" + pulling.split()[-1] + ".tgz" in packing
    assert next(line.split()[3] for line in commands if line.startswith("crane append")) == "build/module.tar.gz"
    assert "$LIBRARY" not in packing


def test_deckhouse_finds_the_module_and_the_version_of_its_channel() -> None:
    """By the tags of the source, and by the tags of the release images."""
    commands = _commands_for_a_module()
    module = "$REGISTRY/modules/gpu-control-plane"
    made = [word for line in commands for before, word in pairwise(line.split()) if before == "--new_tag"]
    assert made == [f"{module}:v1.2.3", f"{module}/release:v1.2.3", "$REGISTRY/modules:gpu-control-plane"]
    assert f"crane tag {module}/release:v1.2.3 stable" in commands


def test_the_page_publishes_the_module_by_the_printed_commands() -> None:
    page = (PROJECT / "docs/install-deckhouse.md").read_text().replace("$REPO", "$REGISTRY/modules")
    printed = [line for line in _commands_for_a_module("0.1.0") if "$REGISTRY/modules" in line]
    there = [line for line in page.splitlines() if "$REGISTRY/modules" in line]
    shared = [line for line in printed if line.startswith(("crane append", "crane tag")) and "build/" not in line]
    assert len(shared) == 2
    for line in shared:
        assert there.count(line) == 2, f"without werf and with it: {line}"


def _commands_for_a_module(version: str = "1.2.3") -> list[str]:
    image = ImageArchive(arch="amd64", archive=Path("i.tar"), sbom=Path("i.json"), digest="sha256:1")
    files = tuple(map(Path, ("dist/RELEASE-NOTES.md", "dist/module.tar.gz")))
    made = Artifacts(
        version=version,
        images=(image,),
        chart=files[0],
        wheel=files[0],
        krew=files[0],
        module=files[1],
        downloads=files,
    )
    return push_commands(made, "registry.example/gpu").splitlines()


def test_the_commands_push_every_artifact() -> None:
    image = ImageArchive(arch="amd64", archive=Path("i.tar"), sbom=Path("i.json"), digest="sha256:1")
    files = tuple(map(Path, ("RELEASE-NOTES.md", "c.tgz", "w.whl", "gpu.yaml", "SHA256SUMS")))
    made = Artifacts(
        version="1.2.3", images=(image,), chart=files[1], wheel=files[2], krew=files[3], module=None, downloads=files
    )
    script = push_commands(made, "registry.example/gpu")
    assert script.startswith("REGISTRY=registry.example/gpu\n")
    assert subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=False).returncode == 0
    for path in (*files, image.archive, image.sbom):
        assert str(path) in script
    assert script.count("registry.example") == 1
