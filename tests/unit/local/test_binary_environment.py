"""Programs that the environment names are used when their version is right, and skipped when it is not."""

from pathlib import Path

import pytest

from gpu_control_plane.local.binaries import ensure_binaries
from gpu_control_plane.local.environment import named_by_environment
from unit.local.recorded_progress import RecordedProgress


def program(folder: Path, name: str, prints: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(0o755)
    return path


def test_assets_of_our_minor_version_are_used(tmp_path: Path) -> None:
    path = program(tmp_path, "kube-apiserver", "Kubernetes v1.36.0")
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path), "PATH": ""}
    binaries = ensure_binaries(["kube-apiserver"], RecordedProgress(), environ)
    assert (binaries["kube-apiserver"].path, binaries["kube-apiserver"].version) == (path, "v1.36.0")


def test_assets_of_another_version_are_passed_over_with_a_note(tmp_path: Path) -> None:
    path = program(tmp_path, "kube-apiserver", "Kubernetes v1.31.0")
    progress = RecordedProgress()
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path), "PATH": ""}
    assert named_by_environment("kube-apiserver", environ, progress) is None
    assert progress.notes == [f"Passing over {path}, named by KUBEBUILDER_ASSETS: it is v1.31.0, and 1.36 is needed."]


@pytest.mark.parametrize(
    "prints", ["Client Version: v1.32.4-dispatcher", "no version at all", ""], ids=["older", "odd", "silent"]
)
def test_another_kubectl_on_path_is_passed_over_silently(tmp_path: Path, prints: str) -> None:
    program(tmp_path, "kubectl", prints)
    progress = RecordedProgress()
    assert named_by_environment("kubectl", {"PATH": str(tmp_path)}, progress) is None
    assert progress.notes == []


def test_assets_come_before_path(tmp_path: Path) -> None:
    assets = program(tmp_path / "assets", "etcd", "etcd Version: 3.7.0")
    program(tmp_path / "path", "etcd", "etcd Version: 3.7.1")
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "PATH": str(tmp_path / "path")}
    assert named_by_environment("etcd", environ, RecordedProgress()) == (assets, "v3.7.0")


def test_a_program_that_fails_has_no_version(tmp_path: Path) -> None:
    path = program(tmp_path, "etcd", "etcd Version: 3.7.0")
    path.write_text(path.read_text() + "exit 3\n")
    assert named_by_environment("etcd", {"PATH": str(tmp_path)}, RecordedProgress()) is None
