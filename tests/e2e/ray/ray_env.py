"""Real Ray on a real node: pods that reach each other by name, simulated cards in pools, and our operator in a pod."""

import contextlib
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import gpu_control_plane
from blocking_wait import until
from e2e.agent.agent_env import AgentEnv
from e2e.cluster_env import ClusterEnv
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.local.images import BUSYBOX

POOL: Final = "training"
RESOURCE: Final = f"gpu.deckhouse.io/{POOL}"
APPS: Final = "apps"
"""The ConfigMap with what Ray Serve serves, and with the client that asks for it."""
CONTROLLER: Final = "controller"
_EVERY_NAMESPACE: Final[dict[str, Any]] = {"namespaceSelector": {}}
_SHARES: Final = 10240
_CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
_PATIENCE: Final = 150.0


class RayEnv:
    """A cluster with one real node, cards in one pool, and the operator as a pod that a test may kill."""

    def __init__(self, cluster_env: ClusterEnv) -> None:
        self.cluster_env = cluster_env
        self.kubectl = cluster_env.kubectl
        self.agent = AgentEnv(cluster_env)

    # Setting up.

    def start(self, image: Path) -> None:
        _share_processors(self.cluster_env.node.interface)
        self.cluster_env.node.import_image(image)
        self.agent.install(self.agent.machine)
        self.agent.start_agent()
        self._start_controller()
        self.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": APPS},
                "data": {
                    file: (Path(__file__).parent / file).read_text() for file in ("demo_app.py", "request_load.py")
                },
            }
        )
        self._make_pool()

    def close(self) -> None:
        self.agent.close()

    def create(self, *objects: dict[str, Any]) -> None:
        self.kubectl("create", "-f", "-", given="\n---\n".join(map(json.dumps, objects)))

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", given="\n---\n".join(map(json.dumps, objects)))

    def delete(self, kind: str, name: str, *options: str) -> None:
        """Delete an object and wait until it is gone, and until all pods of Ray are."""
        self.kubectl("delete", kind, name, "--wait", "--timeout=120s", *options)
        until(lambda: not self.pods(), within=_PATIENCE)

    # What can be seen.

    def get(self, kind: str, name: str, group: str = "ray.io/v1", namespace: str = "default") -> dict[str, Any]:
        return self.cluster_env.read(f"/apis/{group}/namespaces/{namespace}/{kind}/{name}")

    def status(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(kind, name).get("status", {})
        return found

    def condition(self, kind: str, name: str, condition: str) -> str:
        """The status of a condition; empty while there is none."""
        conditions = self.status(kind, name).get("conditions", [])
        return next((str(held["status"]) for held in conditions if held["type"] == condition), "")

    def items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.cluster_env.read(path)["items"]
        return found

    def clusters(self) -> list[dict[str, Any]]:
        return self.items("/apis/ray.io/v1/namespaces/default/rayclusters")

    def pods(self, cluster: str | None = None, node_type: str | None = None) -> list[dict[str, Any]]:
        """Pods of Ray that are not being deleted."""
        pods = self.items("/api/v1/namespaces/default/pods?labelSelector=ray.io%2Fis-ray-node%3Dyes")
        wanted = {"ray.io/cluster": cluster, "ray.io/node-type": node_type}
        return [
            pod
            for pod in pods
            if all(value is None or pod["metadata"]["labels"][key] == value for key, value in wanted.items())
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def head(self, cluster: str) -> str:
        """The name of the head's pod."""
        [pod] = self.pods(cluster, "head")
        return str(pod["metadata"]["name"])

    def in_head(self, cluster: str, code: str) -> str:
        """What a piece of Python says on the head."""
        return self.kubectl("exec", self.head(cluster), "-c", "ray-head", "--", "python3", "-c", code)

    def dashboard(self, cluster: str, path: str) -> Any:
        """What Ray itself says, asked in the head's pod."""
        url = f"http://127.0.0.1:8265{path}"
        code = f"import urllib.request; print(urllib.request.urlopen({url!r}, timeout=30).read().decode())"
        return json.loads(self.in_head(cluster, code))

    def answer(self, url: str) -> str:
        """What a server in the cluster answers; nothing while it does not."""
        code = f"import urllib.request; print(urllib.request.urlopen({url!r}, timeout=9).read().decode(), end='')"
        head = next(iter(self.pods(node_type="head")))["metadata"]["name"]
        try:
            return self.kubectl("exec", head, "-c", "ray-head", "--", "python3", "-c", code)
        except AssertionError:
            return ""

    def wait_ready(self, cluster: str, pods: int, within: float = _PATIENCE) -> None:
        """Until a RayCluster has so many pods and all are ready."""
        until(lambda: [_is_ready(pod) for pod in self.pods(cluster)] == [True] * pods, within=within)

    # The operator.

    def kill_controller(self) -> None:
        """End the operator as a crash would. It is started again at once: the kubelet would wait longer each time."""
        before = self._controller_pids()
        assert before, "the controller does not run"
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        until(lambda: self._controller_pids() - before)

    def _controller_pids(self) -> set[int]:
        uid = self.cluster_env.pod(CONTROLLER)["metadata"]["uid"]
        group = next(path for root in _CONTROL_GROUPS.iterdir() for path in root.glob(f"**/pod{uid}"))
        pids = {int(pid) for file in group.glob("*/cgroup.procs") for pid in file.read_text().split()}
        return {pid for pid in pids if _command(pid)[1:3] == [b"-m", b"gpu_control_plane.controller"]}

    def _start_controller(self) -> None:
        """With the code of this very checkout, and with nothing of the cluster but what every pod has."""
        rights = ("--clusterrole=cluster-admin", "--serviceaccount=default:default")
        self.kubectl("create", "clusterrolebinding", CONTROLLER, *rights)
        ours = Path(gpu_control_plane.__file__).parents[1]
        needed = {
            Path(path) for path in ("/usr", "/lib", "/lib64", sys.prefix, sys.base_prefix, ours) if Path(path).exists()
        }
        folders = sorted(path for path in needed if not any(parent in needed for parent in path.parents))
        mounts = [{"name": f"v{index}", "mountPath": str(path), "readOnly": True} for index, path in enumerate(folders)]
        command = shlex.join([sys.executable, "-m", "gpu_control_plane.controller", "--without=operator"])
        container = {
            "name": "main",
            "image": BUSYBOX,
            "command": ["sh", "-c", f"while true; do {command} --identity=test; done"],
            "env": [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}, {"name": "PYTHONPATH", "value": str(ours)}],
            "volumeMounts": mounts,
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1},
        }
        volumes = [{"name": f"v{index}", "hostPath": {"path": str(path)}} for index, path in enumerate(folders)]
        self.cluster_env.create_pod(CONTROLLER, containers=[container], volumes=volumes)
        until(lambda: _is_ready(self.cluster_env.pod(CONTROLLER)), within=_PATIENCE)

    def _make_pool(self) -> None:
        pool = {"apiVersion": "gpu.deckhouse.io/v1alpha1", "kind": "GPUPool", "metadata": {"name": POOL}}
        self.create({**pool, "spec": {"access": _EVERY_NAMESPACE}})
        cards = [self.agent.card(index) for index in range(len(self.agent.machine.addresses))]
        until(lambda: all(self.cluster_env.find(GPUDevice.resource.path(name=card)) for card in cards), _PATIENCE)
        for card in cards:
            self.kubectl("annotate", "gpudevice", card, f"gpu.deckhouse.io/assignment={POOL}")
        self.agent.wait_offered(RESOURCE, len(cards))


@contextlib.contextmanager
def ray_env_on(cluster_env: ClusterEnv, image: Path) -> Iterator[RayEnv]:
    env = RayEnv(cluster_env)
    try:
        env.start(image)
        yield env
    finally:
        env.close()


def settle_for(seconds: float) -> None:
    """Give something that must not happen the time to happen."""
    time.sleep(seconds)


class Stopwatch:
    """Prints how long things took; `-s` and the long run's log show it."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def say(self, what: str) -> None:
        sys.stdout.write(f"  {time.monotonic() - self._started:6.1f} s  {what}\n")
        sys.stdout.flush()


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(held["type"] == "Ready" and held["status"] == "True" for held in conditions)


def _command(pid: int) -> list[bytes]:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _share_processors(interface: str) -> None:
    """All pods of a node together count as one process among those of the machine, and Ray gives up when it starts
    slowly: so let them count as several.
    """
    for file in _CONTROL_GROUPS.glob(f"*/gpu-control-plane-{interface}/cpu.shares"):
        file.write_text(str(_SHARES))
    for file in _CONTROL_GROUPS.glob(f"gpu-control-plane-{interface}/cpu.weight"):
        file.write_text(str(_SHARES // 10))
