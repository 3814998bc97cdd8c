"""Every process that cannot do its work ends with a sentence and an exit code that is not 0: a Job that failed must not
look complete, and a container that cannot run must not look as if it had chosen to end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROCESSES = {
    "controller": ("gpu_control_plane.controller", "--status-port=0"),
    "agent": ("gpu_control_plane.agent", "--hardware=simulated"),
    "discovery": ("gpu_control_plane.agent", "--discover"),
    "simulated agents": ("gpu_control_plane.agent", "--simulated"),
    "install-crds": ("gpu_control_plane.installation.crds",),
    "declare": ("gpu_control_plane.installation.declare", '{"kind":"NVIDIADriver","metadata":{"name":"a"},"spec":{}}'),
    "uninstall": ("gpu_control_plane.installation.uninstall",),
    "kubectl gpu simulate": ("gpu_control_plane.cli", "simulate", "list"),
    "kubectl gpu doctor": ("gpu_control_plane.cli", "doctor"),
    "kubectl gpu usage": ("gpu_control_plane.cli", "usage"),
    "example": ("examples.namespace_quotas",),
}
"""Those that talk to an API server, as they are started."""
BROKEN = {
    "missing": None,
    "no YAML": "a: [",
    "of another kind": "apiVersion: v1\nkind: Secret\n",
    "without a context": "apiVersion: v1\nkind: Config\ncurrent-context: nowhere\n",
}


def ended(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    own = {"KUBECONFIG": "", "GPU_CONTROL_PLANE_STATE": str(folder), "GPU_CONTROL_PLANE_CACHE": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **own, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def sentences(ran: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in ran.stderr.splitlines() if not line.startswith("{")]


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_without_a_kubeconfig_says_so_and_fails(process: str, tmp_path: Path) -> None:
    ran = ended(tmp_path, "-m", *PROCESSES[process], KUBECONFIG=str(tmp_path / "nowhere"))
    said = sentences(ran)
    assert (ran.returncode, len(said)) == (1, 1), ran.stderr
    assert "nowhere" in said[0]


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_kubeconfig_is_one_sentence(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    ran = ended(tmp_path, "-m", *PROCESSES["controller"], KUBECONFIG=str(path))
    said = sentences(ran)
    assert (ran.returncode, len(said)) == (1, 1), ran.stderr
    assert said[0].startswith("error: ")


@pytest.mark.parametrize("program", ["gpu_control_plane.local", "gpu_control_plane.local.supervisor"])
def test_programs_of_the_local_cluster_fail_where_they_cannot_write(program: str, tmp_path: Path) -> None:
    occupied = tmp_path / "occupied"
    occupied.write_text("")
    ran = ended(tmp_path, "-m", program, str(occupied), GPU_CONTROL_PLANE_CACHE=str(occupied))
    assert ran.returncode != 0
