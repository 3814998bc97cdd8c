"""The chart in a real cluster: installed by Helm, with accounts that tests can act as.

Nodes are simulated, so pods exist and run in name only. That is enough for tokens that are bound to them.
"""

import asyncio
import base64
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import yaml

from blocking_wait import until
from gpu_control_plane.agent.fleet.machines import node_manifest
from gpu_control_plane.agent.simulated.machine import HARDWARE, new_machine
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.local import Cluster
from helm.chart import CHART, NAMESPACE, RELEASE, Helm, Manifest, Objects, command_of

WITH_CARDS: Final = ("node-a", "node-b")
WITHOUT_CARDS: Final = ("node-c", "node-d", "node-e")

_SYSTEM: Final = {
    "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
    "feature.node.kubernetes.io/kernel-version.full": "6.8.0-60-generic",
}
_JSON_PATCH: Final = "application/json-patch+json"


class Installed:
    """A cluster, Helm, and whom to act as."""

    def __init__(self, cluster: Cluster, helm: Helm, kubectl: Path) -> None:
        self.cluster = cluster
        self._helm = helm
        self.program = kubectl

    # The cluster.

    def request(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Manifest:
        """As an administrator; anything but success fails the test."""
        answer = self.cluster.client.request(self.cluster.plan.ports.apiserver, method, path, body, content_type)
        assert answer.ok, f"{method} {path}: {answer.body.decode()}"
        return msgspec.json.decode(answer.body, type=dict[str, Any])

    def exists(self, path: str) -> bool:
        return self.cluster.client.request(self.cluster.plan.ports.apiserver, "GET", path).ok

    def kubectl(self, *arguments: str, given: str = "", failing: bool = False) -> str:
        done = subprocess.run(
            [self.program, "--kubeconfig", self.cluster.kubeconfig, *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert failing or done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def add_nodes(self) -> None:
        """Simulated nodes that Node Feature Discovery has labelled; some have cards for agents to find."""

        async def add() -> None:
            async with Client(load_config(self.cluster.kubeconfig)) as client:
                for name in (*WITH_CARDS, *WITHOUT_CARDS):
                    manifest: dict[str, Any] = node_manifest(name, new_machine("H200-141", 2))
                    for field in ("capacity", "allocatable"):
                        manifest["status"][field] = {**manifest["status"][field], "ephemeral-storage": "1Ti"}
                    manifest["metadata"]["labels"] |= _SYSTEM
                    if name in WITHOUT_CARDS:
                        del manifest["metadata"]["annotations"][HARDWARE]
                    await client.create(NodeView, manifest)

        asyncio.run(add())

    # Helm.

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        return self._helm.run(*arguments, values=values, kubeconfig=self.cluster.kubeconfig)

    def install(self, values: Mapping[str, Any]) -> str:
        """All of it, as a person would, except that what a hook's pod does is done beforehand by `run_hook`."""
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self.run_hook("install-crds", values)
        answer = self.helm("install", RELEASE, str(CHART), "--wait", "--timeout", "300s", values=values)
        self._keep_the_webhook_silent(values)
        return answer

    def run_hook(self, component: str, values: Mapping[str, Any], *more: str) -> str:
        """Run the program of a hook, maybe with more arguments than the chart gives it, with the rights that the chart
        gives it, and take the rights away again."""
        hook = Objects(
            each
            for each in self._helm.objects(values).all
            if each["metadata"]["labels"]["app.kubernetes.io/component"] == component
        )
        rights = yaml.safe_dump_all([each for each in hook.all if each["kind"] != "Job"])
        self.kubectl("apply", "-f", "-", given=rights)
        pod = hook.pod(component)
        _python, *arguments = command_of(pod)
        try:
            done = subprocess.run(
                [sys.executable, *arguments, *more],
                env={**os.environ, "KUBECONFIG": str(self.account(pod["spec"]["serviceAccountName"]))},
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            self.kubectl("delete", "-f", "-", given=rights)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def _keep_the_webhook_silent(self, values: Mapping[str, Any]) -> None:
        """The Service leads nowhere here, and nothing may be sent to addresses that are not this machine's."""
        if values.get("webhook", {}).get("enabled", True):
            never = {"matchLabels": {"calls-the-webhook": "never"}}
            for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
                path = f"/apis/admissionregistration.k8s.io/v1/{kind}/gpu-control-plane-webhook"
                places = range(len(self.request("GET", path)["webhooks"]))
                patch = [{"op": "add", "path": f"/webhooks/{each}/objectSelector", "value": never} for each in places]
                self.request("PATCH", path, patch, _JSON_PATCH)

    # Impersonation.

    def account(self, name: str, node: str | None = None) -> Path:
        """A kubeconfig for a service account; with `node` the token is that of its pod there, as the pod has it."""
        spec: dict[str, Any] = {"audiences": []}
        if node is not None:
            pod = self._pod(name, node)
            meta = pod["metadata"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        token = self.request("POST", path, review)["status"]["token"]
        file = self.cluster.folder / f"{name}-{node or 'anywhere'}.kubeconfig"
        file.write_text(yaml.safe_dump(self._kubeconfig(token)))
        return file

    def _pod(self, account: str, node: str) -> Manifest:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?fieldSelector=spec.nodeName%3D{node}"

        def on_the_node() -> list[Manifest]:
            return [
                each for each in self.request("GET", path)["items"] if each["spec"]["serviceAccountName"] == account
            ]

        # Helm does not wait for every pod of a DaemonSet.
        until(on_the_node)
        (found,) = on_the_node()
        return found

    def _kubeconfig(self, token: str) -> Manifest:
        authority = base64.b64encode(self.cluster.authority.read_bytes()).decode()
        server = {"server": self.cluster.server, "certificate-authority-data": authority}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": server}],
            "users": [{"name": "it", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": NAMESPACE}}],
        }


class Program:
    """A program of ours, run with the arguments the chart gives it and as whom the chart lets it be.

    Used with `with`; at the end it must have been refused nothing.
    """

    def __init__(self, arguments: list[str], kubeconfig: Path, log: Path, **environ: str) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                env={**os.environ, "KUBECONFIG": str(kubeconfig), **environ},
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop it in an orderly way, and see that it was never refused anything."""
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(90)
        finally:
            self._process.kill()
        log = self._log.read_text()
        if kind is not None:
            print(log)  # noqa: T201 - what a person needs who looks at the failure
            return
        assert code == 0, log
        assert [line for line in log.splitlines() if "forbidden" in line.lower() or "denied" in line.lower()] == []
