"""Builds with Go: their progress and errors, and that a failed or killed one leaves nothing behind."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from blocking_wait import until
from gpu_control_plane.local.binaries import ensure_binaries
from gpu_control_plane.local.errors import BinaryUnavailable, NoSpace
from gpu_control_plane.local.identity import identify
from gpu_control_plane.local.versions import CONTAINERD, KUBERNETES, Release
from unit.local.recorded_progress import RecordedProgress


def go(folder: Path, script: str) -> dict[str, str]:
    """An environment without a network whose Go is a shell script: what is tested here is how we treat it."""
    path = folder / "go"
    path.write_text(f'#!/bin/sh\n[ "$1 $2" = "env GOVERSION" ] && echo go1.26.0 && exit\n{textwrap.dedent(script)}\n')
    path.chmod(0o755)
    nowhere = "http://127.0.0.1:9"
    return {
        "PATH": os.defpath,
        "HOME": str(folder),
        "GPU_CONTROL_PLANE_GO": str(path),
        "GPU_CONTROL_PLANE_CACHE": str(folder / "cache"),
        "GPU_CONTROL_PLANE_KUBERNETES_URL": nowhere,
        "GPU_CONTROL_PLANE_GITHUB_URL": nowhere,
        "GPU_CONTROL_PLANE_GITHUB_API_URL": nowhere,
    }


# Answers `go list` with two packages, and `go build -o FOLDER PACKAGE…` with programs that say their own names.
WORKS = """\
    [ "$1" = list ] && echo example.org/a && echo example.org/b && exit
    echo example.org/a; echo example.org/b
    while [ "$1" != -o ]; do shift; done
    folder=$2; shift 2
    for package in "$@"; do
      [ "$package" = . ] && package=$PWD
      printf '#!/bin/sh\\nbasename "$0"\\n' > "$folder/${package##*/}"
    done
"""


@pytest.mark.parametrize("release", [KUBERNETES, CONTAINERD], ids=lambda release: release.name)
def test_one_build_serves_every_program_of_a_release(tmp_path: Path, release: Release) -> None:
    progress = RecordedProgress()
    binaries = ensure_binaries(release.programs, progress, go(tmp_path, WORKS))
    assert progress.steps.count(f"Building {release.name} {release.version} with Go") == 1
    for program in release.programs:
        assert subprocess.check_output([binaries.path(program)], text=True).strip() == program


def test_a_build_from_before_a_program_was_added_is_not_taken_for_one_that_has_it(tmp_path: Path) -> None:
    environ = go(tmp_path, WORKS)
    built = ensure_binaries(["kubectl"], RecordedProgress(), environ).path("kubectl").parent
    (built / "kubelet").unlink()
    progress = RecordedProgress()
    ensure_binaries(["kube-apiserver", "kubectl"], progress, environ)
    assert progress.steps == []
    assert ensure_binaries(["kubelet"], progress, environ).path("kubelet").exists()
    assert f"Building kubernetes {KUBERNETES.version} with Go" in progress.steps


def test_a_host_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    progress = RecordedProgress()
    ensure_binaries(["etcd", "kwok"], progress, go(tmp_path, WORKS))
    assert [step.split()[1] for step in progress.steps if step.startswith("Downloading")] == ["etcd"]
    assert progress.notes == [
        "No download of etcd: 127.0.0.1:9 cannot be reached (Connection refused).",
        "No download of kwok: 127.0.0.1:9 cannot be reached (Connection refused).",
    ]


def test_progress_counts_packages(tmp_path: Path) -> None:
    progress = RecordedProgress()
    ensure_binaries(["etcd"], progress, go(tmp_path, WORKS))
    assert "1 of 2 packages compiled" in progress.details


def test_what_go_says_is_shown_without_the_list_of_packages(tmp_path: Path) -> None:
    environ = go(tmp_path, "echo example.org/a; echo 'main.go:3: undefined: x' >&2; exit 1")
    with pytest.raises(BinaryUnavailable, match=r"undefined: x") as caught:
        ensure_binaries(["etcd"], RecordedProgress(), environ)
    assert "example.org/a" not in str(caught.value)
    assert _leftovers(tmp_path) == []


def test_an_old_go_is_named_with_what_to_do(tmp_path: Path) -> None:
    environ = go(tmp_path, "")
    Path(environ["GPU_CONTROL_PLANE_GO"]).write_text("#!/bin/sh\necho go1.19.8\n")
    with pytest.raises(BinaryUnavailable, match=r"is go1\.19\.8; building needs Go 1\.21 or newer.*go\.dev/dl"):
        ensure_binaries(["etcd"], RecordedProgress(), environ)


def test_a_disk_filled_by_go_is_reported_in_one_sentence(tmp_path: Path) -> None:
    script = f"[ $1 = env ] && echo {tmp_path} && exit; echo 'write /x: no space left on device' >&2; exit 1"
    with pytest.raises(NoSpace, match=rf"filled a disk.*{tmp_path} \(.* MB free\).*GOCACHE"):
        ensure_binaries(["etcd"], RecordedProgress(), go(tmp_path, script))


def test_killing_the_process_that_builds_ends_the_build(tmp_path: Path) -> None:
    environ = go(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 300")
    code = "from gpu_control_plane.local import ensure_binaries; ensure_binaries(['etcd'])"
    with subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=subprocess.DEVNULL) as owner:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
        build = identify(int((tmp_path / "pid").read_text()))
        assert build is not None
        owner.send_signal(signal.SIGKILL)
    until(lambda: identify(build.pid) != build)
    ensure_binaries(["etcd"], RecordedProgress(), go(tmp_path, WORKS))
    assert _leftovers(tmp_path) == []


def _leftovers(folder: Path) -> list[Path]:
    return list((folder / "cache" / "bin").glob(".partial-*"))
