"""A real node: containers run, outlive their runtime and their kubelet, come back after a reboot, and leave nothing."""

import json
import signal

import pytest

from blocking_wait import until
from e2e.stage import Stage
from gpu_control_plane.local import RealNode


@pytest.fixture(scope="module")
def pod(stage: Stage) -> str:
    """A pod that runs for as long as the module's tests do."""
    stage.run_pod("steady", ("sh", "-c", "echo hello from a container; exec sleep infinity"))
    return "steady"


def test_the_node_is_ready_and_named(stage: Stage, node: RealNode) -> None:
    info = stage.node_object()["status"]["nodeInfo"]
    assert info["containerRuntimeVersion"].startswith("containerd://2.")
    assert info["bootID"] == node.boot_id


def test_logs_are_readable_and_commands_run_inside(stage: Stage, pod: str) -> None:
    until(lambda: stage.kubectl("logs", pod) == "hello from a container\n")
    assert stage.exec(pod, "hostname") == f"{pod}\n"


def test_pods_see_their_service_account_and_the_api_server(stage: Stage, pod: str) -> None:
    mounts = stage.exec(pod, "cat", "/proc/mounts")
    assert "tmpfs /var/run/secrets/kubernetes.io/serviceaccount tmpfs" in mounts
    plan = stage.cluster.plan
    stage.exec(pod, "sh", "-c", f"nc {plan.gateway} {plan.ports.apiserver} </dev/null")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("program", ["kubelet", "containerd"])
def test_a_pod_outlives_the_programs_that_started_it(
    stage: Stage, node: RealNode, pod: str, program: str, number: signal.Signals
) -> None:
    before = stage.container(pod)["containerID"]
    getattr(node, program).restart(number)
    until(lambda: stage.answers(pod))
    after = stage.container(pod)
    assert (after["containerID"], after["restartCount"]) == (before, 0)


def test_a_drop_in_file_gives_containerd_another_runtime(stage: Stage, node: RealNode) -> None:
    plugin = "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.other"
    drop_in = node.containerd_drop_ins / "other.toml"
    drop_in.write_text(f'version = 3\n[{plugin}]\nruntime_type = "io.containerd.runc.v2"\n')
    node.containerd.restart()
    handler = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "other"}
    stage.kubectl("create", "-f", "-", given=json.dumps({**handler, "metadata": {"name": "other"}}))
    stage.run_pod("different", runtimeClassName="other")
    stage.delete_pod("different")
    drop_in.unlink()
    node.containerd.restart()


def test_volumes_in_memory_work_after_a_restart_of_either(stage: Stage, node: RealNode) -> None:
    node.containerd.restart(signal.SIGKILL)
    node.kubelet.restart(signal.SIGKILL)
    stage.kubectl("create", "secret", "generic", "word", "--from-literal=word=sesame")
    stage.run_pod("reader", volumes=[{"name": "word", "secret": {"secretName": "word"}}])
    stage.delete_pod("reader")


def test_a_reboot_restarts_containers_and_shows(stage: Stage, node: RealNode, pod: str) -> None:
    before, boot = stage.container(pod)["containerID"], node.boot_id
    (node.cdi / "forgotten.json").write_text("{}")
    node.reboot()
    assert stage.node_object()["status"]["nodeInfo"]["bootID"] == node.boot_id != boot
    until(lambda: (now := stage.container(pod))["ready"] and now["containerID"] != before)
    assert stage.container(pod)["restartCount"] == 1
    assert list(node.cdi.iterdir()) == []
