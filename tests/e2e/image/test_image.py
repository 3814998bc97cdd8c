"""The image on a real node: imported by containerd, started by a kubelet that insists on an ordinary user."""

import json
import time
from typing import Any

import pytest
from images.debian import USER
from images.entrypoint import PROCESSES
from images.recipe import NAME, Built

from blocking_wait import until
from e2e.cluster_env import ClusterEnv
from image.building import shared_image

pytestmark = pytest.mark.timeout(600)  # the image may have to be built first
STARTS_WITHIN = 3.0
"""Seconds of a processor for `--help`, whatever else the machine does meanwhile; it takes a tenth of that."""
PATIENCE = 90
"""Seconds that the kubelet waits for a process to end."""
_CONFINED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
}
_LOOK = """
import json, os, ssl, subprocess
def writable(folder):
    return [path for path, _, _ in os.walk(folder) if os.access(path, os.W_OK)]
helped = subprocess.run(["/usr/local/bin/gpu-control-plane", "controller", "--help"], stdout=subprocess.DEVNULL)
spent = os.times()
took = spent.children_user + spent.children_system
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "ids": [os.getuid(), os.getgid()],
    "capabilities": int(status["CapEff"], 16),
    "writable": [path for name in ("etc", "home", "opt", "root", "tmp", "usr", "var") for path in writable("/" + name)],
    "authorities": ssl.create_default_context().cert_store_stats()["x509_ca"],
    "failed": helped.returncode,
    "took": took,
}))
"""


@pytest.fixture(scope="module")
def image(cluster_env: ClusterEnv, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The image, as if the node had pulled it."""
    image = shared_image(tmp_path_factory)
    cluster_env.node.import_image(image.archive)
    return image


@pytest.fixture(scope="module")
def controller(cluster_env: ClusterEnv, image: Built) -> str:
    """A controller that really controls: as a service account, with leader election, answering its probes."""
    plan = cluster_env.cluster.plan
    rights = ("--clusterrole=cluster-admin", "--serviceaccount=default:default")
    cluster_env.kubectl("create", "clusterrolebinding", "controller", *rights)
    # Pods have no way to the service's address here, but one to the API server itself.
    address = {"KUBERNETES_SERVICE_HOST": str(plan.gateway), "KUBERNETES_SERVICE_PORT": str(plan.ports.apiserver)}
    _create(
        cluster_env,
        "controller",
        "controller",
        "--namespace=default",
        env=[{"name": name, "value": value} for name, value in address.items()],
        readinessProbe={"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1},
    )
    until(lambda: _status(cluster_env, "controller").get("ready"), within=150)
    return "controller"


@pytest.mark.parametrize("process", PROCESSES)
def test_each_process_explains_itself(cluster_env: ClusterEnv, image: Built, process: str) -> None:
    _create(cluster_env, f"help-{process}", process, "--help")
    ended = _end_of(cluster_env, f"help-{process}")
    assert ended["exitCode"] == 0
    assert "Usage:" in cluster_env.kubectl("logs", f"help-{process}")


def test_a_process_that_is_not_there_is_told_so(cluster_env: ClusterEnv, image: Built) -> None:
    _create(cluster_env, "unknown", "shell")
    assert _end_of(cluster_env, "unknown")["exitCode"] == 1
    assert "There is no process 'shell' in this image" in cluster_env.kubectl("logs", "unknown")


def test_the_controller_leads_as_an_ordinary_user(cluster_env: ClusterEnv, controller: str) -> None:
    leases = json.loads(cluster_env.kubectl("get", "leases", "-o", "json"))["items"]
    assert any(controller in lease["spec"].get("holderIdentity", "") for lease in leases)
    assert _status(cluster_env, controller)["restartCount"] == 0


def test_a_container_can_change_nothing_and_starts_fast(cluster_env: ClusterEnv, controller: str) -> None:
    seen = json.loads(cluster_env.exec(controller, "/usr/bin/python3", "-c", _LOOK))
    assert seen["ids"] == [USER, USER]
    assert seen["capabilities"] == 0
    assert seen["writable"] == []
    assert seen["authorities"] > 100
    assert seen["failed"] == 0
    assert seen["took"] < STARTS_WITHIN


def test_the_controller_ends_when_it_is_asked_to(cluster_env: ClusterEnv, controller: str) -> None:
    asked = time.monotonic()
    cluster_env.kubectl("delete", "pod", controller, "--wait", "--timeout=120s")
    assert time.monotonic() - asked < PATIENCE - 10  # a first process that ignored SIGTERM would take all of it


def _create(cluster_env: ClusterEnv, name: str, *arguments: str, **container: Any) -> None:
    main = {"name": "main", "image": NAME, "imagePullPolicy": "Never", "args": arguments, "securityContext": _CONFINED}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [{**main, **container}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": PATIENCE,
        },
    }
    cluster_env.kubectl("create", "-f", "-", given=json.dumps(pod))


def _status(cluster_env: ClusterEnv, pod: str) -> dict[str, Any]:
    """The status of a pod's only container, as far as there is one."""
    [status] = cluster_env.pod(pod)["status"].get("containerStatuses") or [{}]
    return dict(status)


def _end_of(cluster_env: ClusterEnv, pod: str) -> dict[str, Any]:
    """How a pod's container ended, once it has."""
    until(lambda: _status(cluster_env, pod).get("state", {}).get("terminated"), within=150)
    return dict(_status(cluster_env, pod)["state"]["terminated"])
