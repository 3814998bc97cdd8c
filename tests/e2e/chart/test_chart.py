"""The product as it is shipped: our image, installed by Helm on a real node, from the first install to the last trace.

The tests are one story, in order: each begins where the one before ended. It is told in two namespaces, and the API
server writes down what our accounts ask for: docs/rbac.md says why they may do what they did not need here.
"""

import json
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from blocking_wait import until
from e2e.chart.used_rights import Granted, audit_flags, granted_rights, read_calls, unused_rights
from e2e.cluster_env import ClusterEnv
from gpu_control_plane.agent.simulated.machine import HARDWARE, new_machine, write_machine
from gpu_control_plane.api import GPUDevice, GPUNodeState, GPUPool
from gpu_control_plane.api.identity import inventory_id
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.local import Binaries
from helm.chart import CHART, NAMESPACE, RELEASE, Helm
from image.building import shared_image

pytestmark = pytest.mark.timeout(600)  # the image may have to be built first
TRAINING = "gpu.deckhouse.io/training"
CRI = "io.containerd.cri.v1.runtime"
MACHINE = new_machine("H200-141", 2)
VALUES: dict[str, Any] = {
    "image": {"pullPolicy": "Never"},
    "controller": {"replicas": 1},
    "agent": {"hardware": "simulated"},
    "console": {"enabled": True},
    "discovery": {"enabled": True},
    "ray": {"enabled": True},
}
"""With every program and every right that docs/rbac.md is about."""
ELSEWHERE = "gpu-operator"
"""The namespace of NVIDIA's operator, for those who come from there."""
NOTHING = {name: {"enabled": False} for name in ("driver", "toolkit", "devicePlugin", "dcgm", "dcgmExporter", "gfd")}
"""A policy that lets nothing run on the node."""
GUARDED: dict[str, Any] = {
    **VALUES,
    "clusterPolicy": {"create": True, "spec": NOTHING},
    "networkPolicy": {"enabled": True},
    "podSecurity": {"label": True},
    "priorityClasses": {"create": True},
}
"""With a policy, in a cluster with rules of its own."""
PAGE = Path(__file__).parents[3] / "docs/rbac.md"
POOL = """
apiVersion: gpu.deckhouse.io/v1alpha1
kind: GPUPool
metadata: {name: %s}
spec: {resource: {name: %s}, access: {namespaceSelector: {}}}
"""


@pytest.fixture(scope="module")
def audit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit")


@pytest.fixture(scope="module")
def cluster_env(
    start_cluster_env: Callable[..., ClusterEnv], audit_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> ClusterEnv:
    """A node with cards, as Node Feature Discovery would have labelled it, and our image on it."""
    flags = audit_flags(audit_folder, (NAMESPACE, ELSEWHERE))
    cluster_env = start_cluster_env("node-a", services=True, flags=flags)
    cluster_env.node.import_image(shared_image(tmp_path_factory).archive)
    cluster_env.kubectl("label", "node", "node-a", "feature.node.kubernetes.io/pci-10de.present=true")
    cluster_env.kubectl("annotate", "node", "node-a", f"{HARDWARE}={write_machine(MACHINE)}")
    return cluster_env


class Release:
    """The chart in a namespace of the cluster."""

    def __init__(self, cluster_env: ClusterEnv, helm: Helm, namespace: str) -> None:
        self.cluster_env = cluster_env
        self._helm = helm
        self.namespace = namespace
        self.removed_at = datetime.max.replace(tzinfo=UTC)
        """Helm takes rights away while pods end: what these are refused from then on is no fault."""

    def run(self, *arguments: str, values: dict[str, Any] | None = None) -> str:
        wait = ("--namespace", self.namespace, "--wait", "--timeout", "300s")
        return self._helm.run(*arguments, *wait, values=values, kubeconfig=self.cluster_env.cluster.kubeconfig)

    def install(self, values: dict[str, Any]) -> None:
        self.run("install", RELEASE, str(CHART), "--create-namespace", values=values)

    def uninstall(self) -> None:
        self.removed_at = datetime.now(UTC)
        self.run("uninstall", RELEASE)

    def rights(self, values: dict[str, Any]) -> set[Granted]:
        """All that the chart gives to its accounts."""
        return granted_rights(self._helm.objects(values, namespace=self.namespace), self.namespace)

    def test(self) -> str:
        place = ("--namespace", self.namespace, "--timeout", "300s")
        return self._helm.run("test", RELEASE, *place, kubeconfig=self.cluster_env.cluster.kubeconfig)

    def pods(self, component: str) -> list[dict[str, Any]]:
        selector = f"app.kubernetes.io/component={component}"
        found = self.cluster_env.read(f"{Pod.resource.path(self.namespace)}?labelSelector={quote(selector)}")
        pods: list[dict[str, Any]] = found["items"]
        return pods

    def metrics(self) -> str:
        """The controller's metrics, through its Service."""
        path = f"/api/v1/namespaces/{self.namespace}/services/gpu-control-plane-controller:metrics/proxy/metrics"
        return self.cluster_env.kubectl("get", "--raw", path)


@pytest.fixture(scope="module")
def release(cluster_env: ClusterEnv, helm: Helm) -> Release:
    return Release(cluster_env, helm, NAMESPACE)


@pytest.fixture(scope="module")
def second_release(cluster_env: ClusterEnv, helm: Helm) -> Release:
    return Release(cluster_env, helm, ELSEWHERE)


def allocatable(cluster_env: ClusterEnv) -> str:
    found: str = cluster_env.node_object()["status"]["allocatable"].get(TRAINING, "0")
    return found


def approve(cluster_env: ClusterEnv) -> None:
    card = inventory_id("node-a", MACHINE.addresses[0])
    until(lambda: cluster_env.find(GPUDevice.resource.path(name=str(card))) is not None, within=150)
    cluster_env.kubectl("annotate", "gpudevice", str(card), "--overwrite", "gpu.deckhouse.io/assignment=training")
    until(lambda: allocatable(cluster_env) == "1", within=150)


def test_helm_installs_and_everything_is_ready(release: Release) -> None:
    release.install(VALUES)
    for component in ("controller", "agent", "discovery", "console"):
        # Helm does not wait for a DaemonSet that may be away from one node of one.
        until(partial(ready, release, component), within=150)
        (pod,) = release.pods(component)
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0, component


def ready(release: Release, component: str) -> bool:
    pods = [pod["status"].get("containerStatuses", [{}])[0] for pod in release.pods(component)]
    return [pod.get("ready") for pod in pods] == [True]


def test_a_fresh_install_labels_its_nodes(cluster_env: ClusterEnv, release: Release) -> None:
    def labelled() -> str:
        found = cluster_env.find(GPUNodeState.resource.path(name="node-a")) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((str(each["status"]) for each in conditions if each["type"] == "GFDReady"), "")

    until(lambda: labelled() == "True", within=150)
    assert cluster_env.node_object()["metadata"]["labels"]["nvidia.com/gpu.count"] == "2"


def test_helm_test_passes_and_leaves_nothing(cluster_env: ClusterEnv, release: Release) -> None:
    """It fails, and Helm prints why, where one of its questions is answered with no."""
    said = release.test()
    assert "TEST SUITE:     gpu-control-plane-test" in said
    assert said.count("Phase:          Succeeded") == said.count("TEST SUITE:")
    assert "gpu-control-plane:test" not in cluster_env.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")


def test_a_pod_gets_a_card_of_a_pool(cluster_env: ClusterEnv, release: Release) -> None:
    cluster_env.kubectl("create", "-f", "-", given=POOL % ("training", TRAINING))
    approve(cluster_env)
    pool = GPUPool.resource.path(name="training")
    until(lambda: cluster_env.read(pool).get("status", {}).get("phase") == "Ready")
    cluster_env.run_pod("trainer", limits={TRAINING: 1})
    assert "nvidia0" in cluster_env.exec("trainer", "ls", "/dev").split()
    assert "nvidia1" not in cluster_env.exec("trainer", "ls", "/dev").split()


def test_the_webhook_is_called_through_its_service(cluster_env: ClusterEnv, release: Release) -> None:
    def refused() -> bool:
        try:
            cluster_env.kubectl("create", "--dry-run=server", "-f", "-", given=POOL % ("rival", TRAINING))
        except AssertionError:
            return True
        return False

    until(refused)  # the API server takes a moment to hear whom to trust
    with pytest.raises(AssertionError, match="The older pool training has the same resource"):
        cluster_env.kubectl("create", "-f", "-", given=POOL % ("rival", TRAINING))
    calls = [line for line in release.metrics().splitlines() if line.startswith("kube_webhook_requests_total{")]
    assert any('path="/validate-gpupool"' in line and 'allowed="false"' in line for line in calls), calls
    with pytest.raises(AssertionError, match=r'webhook "pods\.gpu\.deckhouse\.io" denied.*which no GPU pool offers'):
        cluster_env.create_pod("lost", limits={f"{TRAINING}-of-others": 1})


def test_an_upgrade_disturbs_no_running_pod(cluster_env: ClusterEnv, release: Release) -> None:
    (before,) = release.pods("agent")
    trainer = cluster_env.container("trainer")["containerID"]
    release.run("upgrade", RELEASE, str(CHART), values={**VALUES, "logLevel": "debug"})
    until(lambda: [pod["metadata"]["name"] for pod in release.pods("agent")] != [before["metadata"]["name"]])
    until(lambda: allocatable(cluster_env) == "1", within=150)
    after = cluster_env.container("trainer")
    assert (after["containerID"], after["restartCount"]) == (trainer, 0)
    assert "nvidia0" in cluster_env.exec("trainer", "ls", "/dev").split()


def test_an_uninstall_leaves_nothing_but_what_people_made(cluster_env: ClusterEnv, release: Release) -> None:
    release.uninstall()
    programs = ("agent", "controller", "discovery", "console")
    until(lambda: not any(release.pods(each) for each in programs), within=150)
    kinds = (
        "clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations,"
        "validatingadmissionpolicies,validatingadmissionpolicybindings"
    )
    assert "/gpu-" not in cluster_env.kubectl("get", kinds, "-o", "name")
    left = ("get", "all,secrets,leases,roles,rolebindings,nodefeatures", "-n", NAMESPACE, "-o", "name")
    until(lambda: cluster_env.kubectl(*left).split() == [])
    labels = cluster_env.node_object()["metadata"]["labels"]
    assert not [name for name in labels if name.startswith(("nvidia.com/", "gpu.deckhouse.io/"))]
    pool = json.loads(cluster_env.kubectl("get", "gpupool", "training", "-o", "json"))
    assert "finalizers" not in pool["metadata"]
    assert cluster_env.exec("trainer", "echo", "still here") == "still here\n"


def test_it_can_be_installed_again_elsewhere_and_finds_everything(
    cluster_env: ClusterEnv, second_release: Release
) -> None:
    """Together with a ClusterPolicy this time, which a job makes and the controller answers, and with all guards."""
    until(
        lambda: allocatable(cluster_env) == "0", within=150
    )  # else what the last agent offered passes for the next one's
    second_release.install(GUARDED)
    until(lambda: allocatable(cluster_env) == "1", within=150)
    status = ("get", "clusterpolicy", "cluster-policy", "-o", "jsonpath={.status.namespace}")
    until(lambda: cluster_env.kubectl(*status) == ELSEWHERE, within=150)
    cluster_env.delete_pod("trainer")
    cluster_env.run_pod("second", limits={TRAINING: 1})
    assert "nvidia0" in cluster_env.exec("second", "ls", "/dev").split()
    label = ("get", "namespace", ELSEWHERE, "-o", r"jsonpath={.metadata.labels.pod-security\.kubernetes\.io/enforce}")
    assert cluster_env.kubectl(*label) == "privileged"
    (agent,) = second_release.pods("agent")
    assert agent["spec"]["priorityClassName"] == "gpu-control-plane-node-critical"


def test_helm_test_passes_there_as_well(second_release: Release) -> None:
    assert second_release.test().count("Phase:          Succeeded") > 0


def test_the_doctor_finds_it_there(cluster_env: ClusterEnv, second_release: Release) -> None:
    ours = [option for each in ("controller-*", "webhook-*", "policy-*", "agent-*") for option in ("--only", each)]
    command = [sys.executable, "-m", "gpu_control_plane.cli", "doctor", *ours]
    environ = {**os.environ, "KUBECONFIG": str(cluster_env.cluster.kubeconfig)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class RuntimeFiles:
    """The files of the node's containerd, and a stand-in for NVIDIA's runtime that notes whatever it starts."""

    def __init__(self, cluster_env: ClusterEnv, containerd: Path) -> None:
        self._containerd = containerd
        self.config = cluster_env.node.containerd_config
        runtimes = tomllib.loads(self.config.read_text())["plugins"][CRI]["containerd"]["runtimes"]
        self.nvidia = self.config.parent / "nvidia-container-runtime"
        self.notes = self.config.parent / "started"
        runc = runtimes["runc"]["options"]["BinaryName"]
        self.nvidia.write_text(f'#!/bin/sh\necho "$@" >> {self.notes}\nexec {runc} "$@"\n')
        self.nvidia.chmod(0o755)
        self.before = self.found()

    def found(self) -> dict[str, bytes]:
        """All configuration files, byte for byte."""
        return {str(path): path.read_bytes() for path in self.config.parent.rglob("*.toml")}

    @property
    def values(self) -> dict[str, Any]:
        runtime = {
            "configure": True,
            "config": str(self.config),
            "program": str(self._containerd),
            "nvidiaRuntime": str(self.nvidia),
            "default": True,
        }
        # No systemd runs on this node, so a restart is a signal.
        return {"agent": {**VALUES["agent"], "hostPID": True, "runtime": runtime}}


@pytest.fixture(scope="module")
def runtime_files(cluster_env: ClusterEnv, binaries: Binaries) -> RuntimeFiles:
    return RuntimeFiles(cluster_env, binaries.path("containerd"))


@contextmanager
def supervised(cluster_env: ClusterEnv) -> Iterator[list[str]]:
    """containerd is started again when it ends, as systemd would; how often it was."""
    ended, starts = threading.Event(), list[str]()

    def supervise() -> None:
        while not ended.wait(0.1):
            if not cluster_env.node.containerd.running:
                starts.append("again")
                cluster_env.node.containerd.start()

    thread = threading.Thread(target=supervise)
    thread.start()
    try:
        yield starts
    finally:
        ended.set()
        thread.join()


def test_the_container_runtime_is_configured_by_a_value_and_pods_start_through_it(
    cluster_env: ClusterEnv, second_release: Release, runtime_files: RuntimeFiles
) -> None:
    with supervised(cluster_env) as starts:
        second_release.run("upgrade", RELEASE, str(CHART), values={**VALUES, **runtime_files.values})
        until(lambda: len(starts) == 1, within=150)
        until(lambda: cluster_env.answers("second"), within=150)
        assert cluster_env.container("second")["restartCount"] == 0
        until(partial(ready, second_release, "agent"), within=150)
        cluster_env.delete_pod("second")
        until(lambda: allocatable(cluster_env) == "1", within=150)
        cluster_env.run_pod("third", limits={TRAINING: 1})
    assert "nvidia0" in cluster_env.exec("third", "ls", "/dev").split()
    assert "create" in runtime_files.notes.read_text()
    until(lambda: configured(cluster_env))
    assert len(starts) == 1, "restarted once, and never again"


def test_a_value_that_goes_takes_its_configuration_along(
    cluster_env: ClusterEnv, second_release: Release, runtime_files: RuntimeFiles
) -> None:
    """As for real cards: an agent that only pretends has no rights to do so."""
    values = {**VALUES, "agent": {"hardware": "real", "hostPID": True}}
    with supervised(cluster_env) as starts:
        second_release.run("upgrade", RELEASE, str(CHART), values=values)
        until(lambda: runtime_files.found() == runtime_files.before, within=150)
        until(lambda: len(starts) == 1, within=150)
    until(lambda: cluster_env.answers("third"), within=150)
    until(lambda: not configured(cluster_env), within=150)


def test_an_uninstall_takes_back_exactly_what_was_written(
    cluster_env: ClusterEnv, second_release: Release, runtime_files: RuntimeFiles
) -> None:
    with supervised(cluster_env):
        second_release.run("upgrade", RELEASE, str(CHART), values={**VALUES, **runtime_files.values})
        until(lambda: configured(cluster_env), within=150)
        assert runtime_files.found() != runtime_files.before
        second_release.uninstall()
    assert runtime_files.found() == runtime_files.before
    assert not Path("/var/lib/gpu-control-plane").exists()
    until(lambda: cluster_env.answers("third"), within=150)
    assert cluster_env.container("third")["restartCount"] == 0


def test_nothing_that_our_programs_asked_for_was_forbidden(
    release: Release, second_release: Release, audit_folder: Path
) -> None:
    removed = {each.namespace: each.removed_at for each in (release, second_release)}
    forbidden = [call for call in read_calls(audit_folder) if call.forbidden]
    assert [call for call in forbidden if call.at < removed[call.namespace]] == []
    assert {call.account for call in forbidden} <= {"controller", "agent", "discovery", "console"}


def test_every_right_was_used_or_has_a_reason(
    release: Release, second_release: Release, runtime_files: RuntimeFiles, audit_folder: Path
) -> None:
    granted = release.rights(VALUES)
    for values in (GUARDED, {**VALUES, **runtime_files.values}):
        granted |= second_release.rights(values)
    allowed = [call.used(granted) for call in read_calls(audit_folder) if not call.forbidden]
    used = {right for right in allowed if right is not None}
    reasons = unused_rights(PAGE.read_text())
    for rights, wrong in (
        (granted - used - reasons.keys(), "Rights that were not used, and have no reason in docs/rbac.md:"),
        (reasons.keys() - granted, "Rights that docs/rbac.md gives reasons for, and the chart does not give:"),
    ):
        assert not rights, "\n".join((wrong, *map(str, sorted(rights))))


def configured(cluster_env: ClusterEnv) -> bool:
    """Whether the agent has reported that it wrote something."""
    agent = cluster_env.read(GPUNodeState.resource.path(name="node-a"))["status"].get("agent", {})
    return bool(agent.get("runtimeConfigured"))
