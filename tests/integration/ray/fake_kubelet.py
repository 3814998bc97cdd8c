"""Pods on an API server without scheduler and kubelet: those that may be scheduled get a node and run, and
those that are deleted go. The test says what else happens to them."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from gpu_control_plane.kube import Client, Key, Runtime, Selection
from gpu_control_plane.kube.errors import Conflict, Invalid, NotFound
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.ray.owned import OwnedJob, RayPod

NODE = "node-of-ray"


class FakeKubelet:
    """Kubelet and scheduler of one namespace. `starts` and `may_go` say which pods run, and which go when they are
    deleted."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self.starts: Callable[[RayPod], bool] = lambda _pod: True
        self.may_go: Callable[[RayPod], bool] = lambda _pod: True
        self.started: list[str] = []
        """Names of pods in the order in which they came to run."""
        self.runtime = Runtime("fake-kubelet", config=client.config, elect=False, status_port=None)
        self._pods = self.runtime.cache(RayPod, Selection(namespace=namespace))
        self._controller = self.runtime.controller("fake-kubelet", self._reconcile).watch(self._pods)

    def look_again(self) -> None:
        """`starts` or `may_go` says something else now."""
        for pod in self._pods:
            self._controller.enqueue(pod.key)

    async def _reconcile(self, key: Key) -> None:
        pod = self._pods.at(key)
        if pod is None:
            return
        with suppress(NotFound, Conflict, Invalid):
            if pod.deleting:
                if self.may_go(pod):
                    await self.end(pod.name)
            elif not pod.spec.scheduling_gates and pod.status.phase in ("", "Pending") and self.starts(pod):
                await self.run(pod)

    async def run(self, pod: RayPod) -> None:
        if not pod.spec.node_name:
            target = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod.name},
                "target": {"kind": "Node", "name": NODE},
            }
            await self._client.post(RayPod, pod.name, "binding", target, namespace=self._namespace)
        self.started.append(pod.name)
        await self.set_status(pod.name, **_running(pod))

    async def set_ready(self, pod: RayPod, *, ready: bool) -> None:
        await self.set_status(pod.name, **_running(pod, ready=ready))

    async def fail(self, name: str, **more: Any) -> None:
        await self.set_status(name, phase="Failed", **more)

    async def set_status(self, name: str, **status: Any) -> None:
        body = {"status": status}
        await self._client.patch(RayPod, name, body, namespace=self._namespace, subresource="status")

    async def end(self, name: str) -> None:
        """A pod goes at once."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        with suppress(NotFound):
            await self._client._write("DELETE", "delete", RayPod, options, name=name, namespace=self._namespace)

    async def complete(self, job: OwnedJob) -> None:
        """A Job of Kubernetes has done its work."""
        now = _time(utc_now())
        condition = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now}
        status = {
            "startTime": now,
            "completionTime": now,
            "succeeded": 1,
            "conditions": [{"type": kind, **condition} for kind in ("SuccessCriteriaMet", "Complete")],
        }
        await self._client.patch(
            OwnedJob, job.name, {"status": status}, namespace=self._namespace, subresource="status"
        )


def _running(pod: RayPod, *, ready: bool = True) -> dict[str, Any]:
    word = "True" if ready else "False"
    return {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "conditions": [{"type": kind, "status": word} for kind in ("Ready", "ContainersReady")],
        "containerStatuses": [
            {"name": each.name, "ready": ready, "restartCount": 0, "image": "x", "imageID": "x",
             "state": {"running": {"startedAt": _time(utc_now())}}}
            for each in pod.spec.containers
        ],
    }  # fmt: skip


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
