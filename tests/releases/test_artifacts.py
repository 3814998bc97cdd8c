"""The artifacts themselves: made twice to the same bytes, and installed as a user would."""

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from images.errors import ImageError
from images.sbom import LICENCE
from images.wheels import locked_names
from release.archives import unpacked
from release.build import build
from release.krew import PLATFORMS, Platform
from release.push import Artifacts
from release.source import Source
from release.versions import current_version

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.local import ensure_binaries
from gpu_control_plane.local.platforms import this_platform
from gpu_control_plane.local.progress import Quiet
from gpu_control_plane.local.versions import HELM, KUBERNETES
from image.spdx import faults

SOURCE = Source(version=current_version(), commit="0" * 40, time=datetime(2026, 11, 1, tzinfo=UTC))
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
URL = "https://example.com/v1"


def _here() -> list[Platform]:
    here = this_platform()
    return [each for each in PLATFORMS if (each.os, each.arch) == (here.os, here.arch)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    """Everything but the images, which tests/image makes, and krew's archives for other machines and Pythons."""
    try:
        folder = tmp_path_factory.mktemp("dist")
        return build(SOURCE, folder, Quiet(), url=URL, architectures=(), platforms=_here(), pythons=(PYTHON,))
    except ImageError as error:  # a wheel may have to be fetched
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


def _named(made: Artifacts, suffix: str) -> Path:
    [found] = [path for path in made.downloads if path.name.endswith(suffix)]
    return found


def test_a_second_run_gives_the_same_bytes(made: Artifacts, tmp_path: Path) -> None:
    again = build(SOURCE, tmp_path, Quiet(), url=URL, architectures=(), platforms=())
    same = [path for path in again.downloads if path.name not in {"gpu.yaml", "SHA256SUMS"}]
    assert len(same) == 5
    for path in same:
        assert path.read_bytes() == _named(made, path.name).read_bytes(), path.name


def test_the_lists_of_contents_are_valid(made: Artifacts) -> None:
    for path in (path for path in made.downloads if path.name.endswith(".spdx.json")):
        document = json.loads(path.read_text())
        assert faults(document) == []
        assert document["packages"][0]["licenseDeclared"] == LICENCE
        assert {package["name"] for package in document["packages"]} >= set(locked_names()) - {"colorama", "tzdata"}


def test_the_chart_renders_from_its_package(made: Artifacts, tmp_path: Path) -> None:
    helm = ensure_binaries(HELM.programs).path("helm")
    rendered = subprocess.run(
        [helm, "template", "gpu", made.chart, "--namespace", DEFAULT_NAMESPACE, "--kube-version", KUBERNETES.version],
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"localhost/gpu-control-plane:{current_version()}" in rendered.stdout, rendered.stderr


def test_uv_tool_install_gives_the_command_and_its_completion(made: Artifacts, tmp_path: Path) -> None:
    """With the locked versions; a user takes the newest that fit."""
    uv = os.environ.get("UV") or shutil.which("uv")
    assert uv, "uv is on PATH wherever make runs"
    cache = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    home = {**os.environ, "HOME": str(tmp_path), "UV_CACHE_DIR": cache}
    export = ["export", "--quiet", "--locked", "--no-dev", "--no-emit-project", "--no-hashes"]
    locked = tmp_path / "locked.txt"
    subprocess.run([uv, *export, "--output-file", locked], check=True, capture_output=True)
    installed = subprocess.run(
        [uv, "tool", "install", "--quiet", "--python", sys.executable, "--constraints", locked, made.wheel],
        env=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert installed.returncode == 0, installed.stderr
    _works(tmp_path / ".local/bin", {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})


def test_an_archive_of_krew_runs_by_a_link_and_leaves_other_programs_alone(made: Artifacts, tmp_path: Path) -> None:
    store, programs = tmp_path / "store/gpu/v1", tmp_path / "bin"
    for path in (store, programs):
        path.mkdir(parents=True)
    shutil.unpack_archive(_named(made, f"{_here()[0].name}.tar.gz"), store, filter="data")
    for name in ("kubectl-gpu", "kubectl_complete-gpu"):
        (programs / name).symlink_to(Path("../store/gpu/v1") / name)
    _works(programs, {"HOME": str(tmp_path), "PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin"})
    # Programs of ours that a command starts find our packages, and nothing in the environment leads others to them.
    show = "import os, gpu_control_plane; print(gpu_control_plane.__file__, os.environ.get('PYTHONPATH'))"
    ran = subprocess.run([store / "env/bin/python", "-P", "-c", show], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{store}/lib/gpu_control_plane/__init__.py None\n"


def test_without_a_python_the_launcher_says_what_to_install(made: Artifacts, tmp_path: Path) -> None:
    launcher = tmp_path / "kubectl-gpu"
    launcher.write_bytes(unpacked(_named(made, f"{_here()[0].name}.tar.gz"))["kubectl-gpu"].content)
    for name in ("dirname", "basename", "readlink"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    ran = subprocess.run(
        ["/bin/sh", launcher, "status"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "kubectl gpu needs Python 3.12" in ran.stderr


def _works(programs: Path, environ: dict[str, str]) -> None:
    def run(name: str, *arguments: str) -> str:
        return subprocess.run(
            [programs / name, *arguments], env=environ, capture_output=True, text=True, check=True
        ).stdout

    assert run("kubectl-gpu", "--version") == f"kubectl gpu, version {current_version()}\n"
    assert "pools\tThe pools" in run("kubectl_complete-gpu", "po")
