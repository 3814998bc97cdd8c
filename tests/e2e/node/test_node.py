"""A real node: containers run, outlive their runtime and their kubelet, come back after a reboot, and leave nothing."""

import json
import signal

import pytest

from blocking_wait import until
from e2e.cluster_env import ClusterEnv
from gpu_control_plane.local import RealNode


@pytest.fixture(scope="module")
def pod(cluster_env: ClusterEnv) -> str:
    """A pod that runs for as long as the module's tests do."""
    cluster_env.run_pod("steady", ("sh", "-c", "echo hello from a container; exec sleep infinity"))
    return "steady"


def test_the_node_is_ready_and_named(cluster_env: ClusterEnv, node: RealNode) -> None:
    info = cluster_env.node_object()["status"]["nodeInfo"]
    assert info["containerRuntimeVersion"].startswith("containerd://2.")
    assert info["bootID"] == node.boot_id


def test_its_folder_may_have_a_long_path(node: RealNode) -> None:
    longest = 107
    assert len(str(node.folder)) > longest
    for socket in (node.containerd_socket, node.pod_resources, node.device_plugins / "kubelet.sock"):
        assert socket.is_socket()
        assert len(str(socket)) < longest


def test_logs_are_readable_and_commands_run_inside(cluster_env: ClusterEnv, pod: str) -> None:
    until(lambda: cluster_env.kubectl("logs", pod) == "hello from a container\n")
    assert cluster_env.exec(pod, "hostname") == f"{pod}\n"


def test_pods_see_their_service_account_and_the_api_server(cluster_env: ClusterEnv, pod: str) -> None:
    mounts = cluster_env.exec(pod, "cat", "/proc/mounts")
    assert "tmpfs /var/run/secrets/kubernetes.io/serviceaccount tmpfs" in mounts
    plan = cluster_env.cluster.plan
    cluster_env.exec(pod, "sh", "-c", f"nc {plan.gateway} {plan.ports.apiserver} </dev/null")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("program", ["kubelet", "containerd"])
def test_a_pod_outlives_the_programs_that_started_it(
    cluster_env: ClusterEnv, node: RealNode, pod: str, program: str, number: signal.Signals
) -> None:
    before = cluster_env.container(pod)["containerID"]
    getattr(node, program).restart(number)
    until(lambda: cluster_env.answers(pod))
    after = cluster_env.container(pod)
    assert (after["containerID"], after["restartCount"]) == (before, 0)


def test_a_drop_in_file_gives_containerd_another_runtime(cluster_env: ClusterEnv, node: RealNode) -> None:
    plugin = "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.other"
    drop_in = node.containerd_drop_ins / "other.toml"
    drop_in.write_text(f'version = 3\n[{plugin}]\nruntime_type = "io.containerd.runc.v2"\n')
    node.containerd.restart()
    handler = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "other"}
    cluster_env.kubectl("create", "-f", "-", given=json.dumps({**handler, "metadata": {"name": "other"}}))
    cluster_env.run_pod("different", runtimeClassName="other")
    cluster_env.delete_pod("different")
    drop_in.unlink()
    node.containerd.restart()


def test_volumes_in_memory_work_after_a_restart_of_either(cluster_env: ClusterEnv, node: RealNode) -> None:
    node.containerd.restart(signal.SIGKILL)
    node.kubelet.restart(signal.SIGKILL)
    cluster_env.kubectl("create", "secret", "generic", "word", "--from-literal=word=sesame")
    cluster_env.run_pod("reader", volumes=[{"name": "word", "secret": {"secretName": "word"}}])
    cluster_env.delete_pod("reader")


def test_a_reboot_restarts_containers_and_shows(cluster_env: ClusterEnv, node: RealNode, pod: str) -> None:
    before, boot = cluster_env.container(pod)["containerID"], node.boot_id
    (node.cdi / "forgotten.json").write_text("{}")
    node.reboot()
    assert cluster_env.node_object()["status"]["nodeInfo"]["bootID"] == node.boot_id != boot
    until(lambda: (now := cluster_env.container(pod))["ready"] and now["containerID"] != before)
    assert cluster_env.container(pod)["restartCount"] == 1
    assert list(node.cdi.iterdir()) == []
