"""A full disk: one sentence with the folder and what to do, and nothing half-written."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_control_plane.cli.main import run
from gpu_control_plane.local.binaries import ensure_binaries
from gpu_control_plane.local.errors import NoSpace
from gpu_control_plane.local.platforms import this_platform
from unit.local.recorded_progress import RecordedProgress
from unit.local.release_host import ReleaseHost, digest, release_host

SIZE = 4 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "small", folder], check=False)  # noqa: S607
    if mounted.returncode != 0:
        if os.environ.get("CI") == "true":
            pytest.fail("a small file system cannot be mounted here, and CI must not skip")
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)  # noqa: S607


@pytest.fixture
def host() -> Iterator[ReleaseHost]:
    with release_host(this_platform()) as host:
        yield host


def test_too_little_room_is_seen_before_the_download(host: ReleaseHost, small_disk: Path) -> None:
    _publish(host, b"x" * (SIZE * 2))
    with pytest.raises(
        NoSpace, match=rf"not enough room in {small_disk}/bin: kwok.* needs about 8 MB, and 4 MB are free"
    ):
        ensure_binaries(["kwok"], RecordedProgress(), host.environ(small_disk))
    assert _files(small_disk) == []


def test_a_disk_that_fills_up_on_the_way_leaves_nothing_behind(host: ReleaseHost, small_disk: Path) -> None:
    path = _publish(host, b"x" * (SIZE * 2))
    host.announced[path] = None
    with pytest.raises(NoSpace, match=r"choose another folder with GPU_CONTROL_PLANE_CACHE="):
        ensure_binaries(["kwok"], RecordedProgress(), host.environ(small_disk))
    assert _files(small_disk) == []


def test_too_little_room_is_seen_before_a_build(small_disk: Path) -> None:
    environ = {**_nowhere(small_disk), "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    with pytest.raises(NoSpace, match="building kubernetes needs about"):
        ensure_binaries(["kube-apiserver"], RecordedProgress(), environ)
    assert _files(small_disk) == []


def test_the_command_line_says_it_in_one_sentence(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in _nowhere(small_disk).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GPU_CONTROL_PLANE_STATE", str(small_disk / "state"))
    assert run(["up"]) == 1
    _out, err = capfd.readouterr()
    assert err.splitlines()[-1].startswith(f"✗ There is not enough room in {small_disk}/bin: ")
    assert "Traceback" not in err


def _publish(host: ReleaseHost, content: bytes) -> str:
    path = next(path for path in host.files if "/kwok-" in path)
    release = next(path for path in host.files if path.startswith("/api/"))
    host.files[release] = host.files[release].replace(digest(host.files[path]).encode(), digest(content).encode())
    host.files[path] = content
    return path


def _nowhere(cache: Path) -> dict[str, str]:
    nowhere = "http://127.0.0.1:9"
    names = ("KUBERNETES_URL", "GITHUB_URL", "GITHUB_API_URL")
    return {"GPU_CONTROL_PLANE_CACHE": str(cache), **{f"GPU_CONTROL_PLANE_{name}": nowhere for name in names}}


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
