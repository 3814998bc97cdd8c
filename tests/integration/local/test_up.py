"""`kubectl gpu up`, `status` and `down`, as people use them: twice, after crashes, without root."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blocking_wait import until
from gpu_control_plane.local import Binaries
from gpu_control_plane.local.identity import identify, is_alive
from gpu_control_plane.local.state_file import read_record
from integration.local.commands import CommandLine, Kubectl


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """A command line with a cluster that is up."""
    command_line = CommandLine(tmp_path_factory.mktemp("home"))
    up = command_line.run("up")
    assert up.returncode == 0, up.stderr
    yield command_line
    command_line.run("down")


@pytest.fixture
def kubectl(gpu: CommandLine, binaries: Binaries) -> Kubectl:
    return Kubectl(binaries.path("kubectl"), gpu.folder / "kubeconfig")


def test_up_again_says_that_it_runs_and_changes_nothing(gpu: CommandLine) -> None:
    before = gpu.pids()
    again = gpu.run("up")
    assert again.returncode == 0
    assert "The cluster gpu was already running." in again.stdout
    assert f"export KUBECONFIG={gpu.folder}/kubeconfig" in again.stdout
    assert gpu.pids() == before


def test_status_shows_every_component_and_the_nodes(gpu: CommandLine) -> None:
    status = gpu.run("status", "--local")
    assert status.returncode == 0
    for component in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"):
        assert f"✓ {component} " in status.stdout
    assert "3 of 3 ready: node-1, node-2, node-3" in status.stdout


def test_the_gpu_api_is_served(kubectl: Kubectl) -> None:
    assert "gpupools" in kubectl("api-resources", "--api-group=gpu.deckhouse.io")


def test_pods_on_simulated_nodes_run_and_jobs_complete(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=any", "--replicas=2")
    kubectl("create", "job", "once", "--image=any")
    kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    kubectl("wait", "--for=condition=complete", "job/once", "--timeout=120s")
    kubectl("delete", "deployment,job", "--all", "--wait", "--timeout=120s")
    until(lambda: "web-" not in kubectl("get", "pods", "--no-headers", "--ignore-not-found"))


def test_another_port_for_a_running_cluster_is_refused(gpu: CommandLine) -> None:
    moved = gpu.run("up", "--port", "6444")
    assert moved.returncode == 1
    assert "already runs at https://127.0.0.1:" in moved.stderr


def test_a_crashed_component_is_restarted_and_status_shows_it(gpu: CommandLine) -> None:
    def scheduler() -> Any:
        status = gpu.status()
        shown = next(each for each in status["components"] if each["name"] == "kube-scheduler")
        return shown if status["state"] == "Running" and shown["pid"] else None

    killed = scheduler()
    os.kill(killed["pid"], signal.SIGKILL)
    until(lambda: (now := scheduler()) and now["pid"] != killed["pid"])
    told = scheduler()
    assert (told["restarts"], told["lastExit"]) == (1, "killed by SIGKILL")


def test_a_killed_supervisor_leaves_no_process_and_up_brings_everything_back(
    gpu: CommandLine, kubectl: Kubectl
) -> None:
    kubectl("create", "namespace", "kept")
    everything = [identify(pid) for pid in gpu.pids()]
    address = gpu.status()["server"]
    os.kill(gpu.status()["supervisorPid"], signal.SIGKILL)
    until(lambda: not any(is_alive(process) for process in everything))
    status = gpu.run("status", "--local")
    assert status.returncode == 3
    assert "was killed. The data is kept." in status.stdout
    assert gpu.run("up").returncode == 0
    assert gpu.status()["server"] == address
    assert "kept" in kubectl("get", "namespaces")


def test_down_leaves_nothing_and_may_be_repeated(gpu: CommandLine) -> None:
    everything = [identify(pid) for pid in gpu.pids()]
    down = gpu.run("down")
    assert down.returncode == 0
    assert "The cluster gpu is gone." in down.stdout
    assert not any(is_alive(process) for process in everything)
    assert list(gpu.folder.parent.iterdir()) == []
    assert "nothing to stop" in gpu.run("down").stdout


def test_interrupting_up_leaves_nothing_running(tmp_path: Path) -> None:
    gpu = CommandLine(tmp_path)
    with gpu.start("up") as up:
        # Asking `status` would take so long that `up` might be through by then.
        until(lambda: (record := read_record(gpu.folder)) and any(each.process for each in record.components))
        record = read_record(gpu.folder)
        assert record is not None
        everything = [record.supervisor, *(component.process for component in record.components)]
        up.send_signal(signal.SIGINT)
        _out, err = up.communicate(timeout=60)
    assert up.returncode == 130
    assert "Traceback" not in err
    assert not any(is_alive(process) for process in everything)
    assert gpu.status()["state"] == "Stopped"


def test_it_works_without_root(tmp_path: Path) -> None:
    setpriv = shutil.which("setpriv")
    if os.geteuid() == 0 and setpriv is None:
        pytest.fail("giving up root needs setpriv, from util-linux")
    prefix: list[str] = []
    if os.geteuid() == 0:
        # May read what root may, as the interpreter can be in root's home, but has no other rights.
        reads = "+dac_read_search"
        prefix = [
            str(setpriv), "--reuid=65534", "--regid=65534", "--clear-groups",
            f"--inh-caps={reads}", f"--ambient-caps={reads}", f"--bounding-set=-all,{reads}",
        ]  # fmt: skip
        os.chown(tmp_path, 65534, 65534)
    gpu = CommandLine(tmp_path, prefix)
    try:
        up = gpu.run("up", "--nodes", "1")
        assert up.returncode == 0, up.stderr
        assert gpu.run("status", "--local").returncode == 0
        assert Path(f"/proc/{gpu.pids()[0]}").stat().st_uid == (65534 if prefix else os.geteuid())
    finally:
        down = gpu.run("down")
    assert down.returncode == 0, down.stderr
