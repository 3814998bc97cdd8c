"""The start-up probe's script, run by a real shell against a made-up node."""

import subprocess
from pathlib import Path

import pytest

from gpu_control_plane.operator.stack.manifest import assets

SCRIPT = next(
    held["data"]["startup-probe.sh"]
    for held in assets("state-driver")
    if held["metadata"]["name"] == "nvidia-driver-startup-probe"
)


def run(root: Path, *, smi: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the script with the node's folders under `root`."""
    tools = root / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "nvidia-smi").write_text(f"#!/bin/sh\nexit {smi}\n")
    (tools / "nvidia-smi").chmod(0o755)
    script = SCRIPT.replace("/run/nvidia", f"{root}/run/nvidia").replace("/sys/module", f"{root}/sys/module")
    return subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": f"{tools}:/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        check=False,
    )


def loaded(root: Path) -> Path:
    """A node with the module, and the file that says that it succeeded."""
    (root / "sys/module/nvidia").mkdir(parents=True)
    (root / "sys/module/nvidia/refcnt").write_text("0")
    (root / "run/nvidia/validations").mkdir(parents=True)
    return root / "run/nvidia/validations/.driver-ctr-ready"


def test_a_working_driver_is_reported_with_its_features(tmp_path: Path) -> None:
    ready = loaded(tmp_path)
    assert run(tmp_path, GDS_ENABLED="true").returncode == 0
    assert ready.read_text().splitlines() == [
        "GDRCOPY_ENABLED: false",
        "GDS_ENABLED: true",
        "GPU_DIRECT_RDMA_ENABLED: false",
    ]


@pytest.mark.parametrize(("status", "passes"), [("Ready", True), ("Ready\n", True), ("Starting", False), ("", False)])
def test_daemons_that_report_their_readiness_are_waited_for(tmp_path: Path, status: str, passes: bool) -> None:
    ready = loaded(tmp_path)
    (ready.parent / ".driver-daemons-status").write_text(status)
    assert (run(tmp_path).returncode == 0) is passes
    assert ready.exists() is passes


def test_nothing_is_reported_before_the_module_is_loaded(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1
    assert "not loaded" in done.stderr


def test_nothing_is_reported_while_the_driver_does_not_answer(tmp_path: Path) -> None:
    ready = loaded(tmp_path)
    assert run(tmp_path, smi=9).returncode == 1
    assert not ready.exists()


def test_every_script_of_the_pod_is_valid_shell() -> None:
    (daemonset,) = (held for held in assets("state-driver") if held["kind"] == "DaemonSet")
    scripts = [SCRIPT]
    for container in daemonset["spec"]["template"]["spec"]["containers"]:
        if container["command"] == ["bash", "-c"]:
            scripts += container["args"]
    assert len(scripts) == 4
    for script in scripts:
        subprocess.run(["/bin/sh", "-n", "-c", script], check=True)
