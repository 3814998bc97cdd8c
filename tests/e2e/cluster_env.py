"""A cluster with real nodes in the hands of a test: pods to run, to look into and to remove."""

import json
import subprocess
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from blocking_wait import until
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.local import Binaries, Cluster, Component, RealNode
from gpu_control_plane.local.images import BUSYBOX
from integration.local.commands import Kubectl

COMPONENTS = (Component.ETCD, Component.APISERVER, Component.CONTROLLER_MANAGER, Component.SCHEDULER)
FOREVER = ("sleep", "infinity")


class ClusterEnv:
    """One cluster, with `kubectl` as its administrator.

    What tests wait for is read from the API server itself: starting `kubectl` costs a tenth of a second of processor
    time, and who waits asks often.
    """

    def __init__(self, cluster: Cluster, binaries: Binaries) -> None:
        self.cluster = cluster
        self.kubectl = Kubectl(binaries.path("kubectl"), cluster.kubeconfig)

    @property
    def node(self) -> RealNode:
        """The first node, which often is the only one."""
        return next(iter(self.cluster.nodes.values()))

    def create_pod(
        self,
        name: str,
        command: tuple[str, ...] = FOREVER,
        *,
        node: str | None = None,
        limits: dict[str, int] | None = None,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """Create a pod of one busybox container. `spec` is the rest of the pod's specification."""
        container = {"name": "main", "image": BUSYBOX, "command": command, "resources": {"limits": limits or {}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels or {}},
            # A first process ignores requests to end, so waiting for it would only take time.
            "spec": {"containers": [container], "nodeName": node, "terminationGracePeriodSeconds": 0, **spec},
        }
        self.kubectl("create", "-f", "-", given=json.dumps(pod))

    def run_pod(self, name: str, *arguments: Any, **keywords: Any) -> dict[str, Any]:
        """Create a pod as `create_pod` does, and wait until it runs."""
        self.create_pod(name, *arguments, **keywords)
        until(lambda: self.pod(name)["status"]["phase"] == "Running", within=150)
        return self.pod(name)

    def pod(self, name: str) -> dict[str, Any]:
        return self.read(Pod.resource.path("default", name))

    def container(self, pod: str) -> dict[str, Any]:
        """The status of a pod's only container."""
        status: dict[str, Any] = self.pod(pod)["status"]["containerStatuses"][0]
        return status

    def node_object(self, name: str | None = None) -> dict[str, Any]:
        return self.read(Node.resource.path(name=name or self.node.name))

    def read(self, path: str) -> dict[str, Any]:
        """An object, or a list of objects."""
        found = self.find(path)
        assert found is not None, f"nothing at {path}"
        return found

    def find(self, path: str) -> dict[str, Any] | None:
        """An object or a list of objects; None if there is no such object, or no such kind yet."""
        port = urlsplit(self.cluster.server).port
        assert port is not None
        answer = self.cluster.client.request(port, "GET", path)
        assert answer.ok or answer.status == HTTPStatus.NOT_FOUND, answer.body
        found: dict[str, Any] | None = json.loads(answer.body) if answer.ok else None
        return found

    def exec(self, pod: str, *command: str) -> str:
        """What a command says inside a pod's container."""
        return self.kubectl("exec", pod, "--", *command)

    def answers(self, pod: str) -> bool:
        """Whether a command runs in a pod; the kubelet takes a moment to find a restarted runtime."""
        try:
            return self.exec(pod, "hostname") == f"{pod}\n"
        except AssertionError:
            return False

    def delete_pod(self, name: str) -> None:
        """Delete a pod and wait until it is gone."""
        self.kubectl("delete", "pod", name, "--wait", "--timeout=120s")

    def inside(self, node: RealNode, *command: str) -> str:
        """What a command says on a node itself, beside its pods."""
        return subprocess.run(node.command(*command), capture_output=True, text=True, check=True, timeout=90).stdout

    def wait_for_service_account(self) -> None:
        """Pods are refused before somebody has made the account they run as."""
        until(lambda: self.find("/api/v1/namespaces/default/serviceaccounts/default") is not None)
