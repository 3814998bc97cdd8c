"""`kubectl gpu up --real-node`: a cluster in which pods really run, with cards for them, and which leaves nothing."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blocking_wait import until
from gpu_control_plane.local import Binaries
from gpu_control_plane.local.identity import identify, is_alive
from gpu_control_plane.local.images import BUSYBOX
from integration.local.commands import CommandLine, Kubectl

CARD = "real-1-0000-18-00-0"
TRAINER = f"""
apiVersion: gpu.deckhouse.io/v1alpha1
kind: GPUPool
metadata: {{name: training}}
spec: {{access: {{namespaceSelector: {{}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: trainer}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: {BUSYBOX}
    command: [sleep, infinity]
    resources: {{limits: {{gpu.deckhouse.io/training: 1}}}}
"""


@pytest.fixture(scope="module")
def gpu(service_binaries: Binaries) -> Iterator[CommandLine]:
    """A command line with a cluster that is up and has one real node with two cards."""
    assert service_binaries.programs
    with tempfile.TemporaryDirectory(prefix="gpu-") as home:
        command_line = CommandLine(Path(home))
        up = command_line.run("up", "--real-node", "--cards", "2")
        try:
            assert up.returncode == 0, up.stderr
            yield command_line
        finally:
            command_line.run("down")


@pytest.fixture(scope="module")
def kubectl(gpu: CommandLine, service_binaries: Binaries) -> Kubectl:
    return Kubectl(service_binaries.path("kubectl"), gpu.folder / "kubeconfig")


def test_the_doctor_finds_nothing_wrong(gpu: CommandLine) -> None:
    doctor = gpu.run("doctor", "--kubeconfig", str(gpu.folder / "kubeconfig"))
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


def test_status_shows_the_real_node_and_its_programs(gpu: CommandLine) -> None:
    status = gpu.run("status", "--local")
    assert status.returncode == 0
    for program in ("machine", "containerd", "kubelet", "kube-proxy"):
        assert f"✓ real-1/{program} " in status.stdout
    assert "✓ agent-real-1 " in status.stdout
    assert "1 of 1 ready: real-1" in status.stdout


def test_up_again_keeps_everything_and_more_nodes_want_a_restart(gpu: CommandLine) -> None:
    before = gpu.pids()
    assert gpu.run("up").returncode == 0
    assert gpu.pids() == before
    more = gpu.run("up", "--real-node", "--real-node")
    assert more.returncode == 1
    assert "gets real nodes only when it starts" in more.stderr
    assert gpu.pids() == before


def test_a_pod_that_asks_for_a_pools_card_really_runs_with_it(kubectl: Kubectl) -> None:
    until(lambda: CARD in kubectl("get", "gpu", "-o", "name", "--ignore-not-found"))
    kubectl("create", "-f", "-", given=TRAINER)
    kubectl("annotate", "gpudevice", CARD, "gpu.deckhouse.io/assignment=training")
    kubectl("wait", "--for=condition=Ready", "pod/trainer", "--timeout=140s")
    assert kubectl("exec", "trainer", "--", "ls", "/dev/nvidia0") == "/dev/nvidia0\n"


def test_a_pod_may_run_as_any_user(kubectl: Kubectl) -> None:
    user = {"apiVersion": "v1", "spec": {"securityContext": {"runAsUser": 1000}}}
    options = ("--restart=Never", f"--image={BUSYBOX}", f"--overrides={json.dumps(user)}")
    kubectl("run", "reader", *options, "--", "ls", "/bin/busybox")
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/reader", "--timeout=140s")


@pytest.mark.parametrize("program", ["kubelet", "containerd", "kube-proxy"])
def test_a_crashed_program_is_restarted_and_pods_run_on(gpu: CommandLine, kubectl: Kubectl, program: str) -> None:
    os.kill(_program(gpu, program)["pid"], signal.SIGKILL)
    until(lambda: (now := _program(gpu, program))["restarts"] == 1 and now["ready"])
    assert _program(gpu, program)["lastExit"] == "killed by SIGKILL"
    until(lambda: gpu.status()["state"] == "Running")
    until(lambda: "true 0" in kubectl("get", "pod", "trainer", "-o", f"jsonpath={_LIFE}"))


def test_down_leaves_nothing(gpu: CommandLine) -> None:
    everything = [identify(pid) for pid in gpu.pids()]
    uplink = f"gpu{(gpu.folder / 'nodes' / 'network').read_text()}"
    assert Path(f"/sys/class/net/{uplink}").exists()
    assert gpu.run("down").returncode == 0
    assert not any(is_alive(process) for process in everything)
    assert list(gpu.folder.parent.iterdir()) == []
    assert not Path(f"/sys/class/net/{uplink}").exists()
    assert list(Path("/sys/fs/cgroup").glob(f"**/gpu-control-plane-{uplink}-*")) == []
    assert not Path(f"/run/gpu-nodes/{uplink}-0").is_symlink()


def test_without_root_it_says_what_is_missing_and_starts_nothing(tmp_path: Path) -> None:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.fail("giving up root needs setpriv, from util-linux")
    reads = "+dac_read_search"  # may read whatever root may, as the interpreter can live in root's home
    nobody = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"]
    nobody += [f"--inh-caps={reads}", f"--ambient-caps={reads}", f"--bounding-set=-all,{reads}"]
    os.chown(tmp_path, 65534, 65534)
    up = CommandLine(tmp_path, nobody).run("up", "--real-node")
    assert up.returncode == 1
    assert "A real node needs root" in up.stderr
    assert CommandLine(tmp_path, nobody).status()["state"] == "Absent"


_LIFE = "{.status.containerStatuses[0].ready} {.status.containerStatuses[0].restartCount}"


def _program(gpu: CommandLine, program: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in gpu.status()["components"] if each["name"] == f"real-1/{program}")
    return found
