"""Which nodes are restored, what is said of those that are not, and that no pod stays behind."""

from typing import Any, cast

import msgspec

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.installation.runtime_undo import PodSettings, pod_name, undo_pod, undo_runtimes
from gpu_control_plane.kube import Client, Object, Selection
from gpu_control_plane.kube.errors import Forbidden

SETTINGS = PodSettings(image="registry.example/gpu:1", pull_secrets=("registry",))


class Cluster:
    """Nodes and their states as an API server has them; every pod ends at once, as `ends` says."""

    def __init__(
        self,
        ready: dict[str, bool],
        configured: tuple[str, ...],
        ends: dict[str, dict[str, Any]],
        refuses: tuple[str, ...] = (),
    ) -> None:
        self._refuses = refuses
        self._ready = ready
        self._configured = configured
        self._ends = ends
        self.pods: dict[str, dict[str, Any]] = {}
        self.created: list[str] = []

    async def list[T: Object](self, kind: type[T], selection: Selection | None = None) -> list[T]:
        if kind is Node:
            flags = {name: "True" if ready else "Unknown" for name, ready in self._ready.items()}
            found = [
                {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": flag}]}}
                for name, flag in flags.items()
            ]
        elif kind is GPUNodeState:
            found = [
                {
                    "metadata": {"name": name},
                    "spec": {"nodeName": name},
                    "status": {"agent": {"runtimeConfigured": name in self._configured}},
                }
                for name in (*self._ready, *self._configured)
            ]
        else:
            found = list(self.pods.values()) if selection is not None and "undo" in (selection.labels or "") else []
        return [msgspec.convert(each, kind) for each in found]

    async def create(self, _kind: type[Object], body: dict[str, Any], _namespace: str) -> None:
        node = body["spec"]["nodeName"]
        if node in self._refuses:
            raise Forbidden(403, "Forbidden", "exceeded quota: small")
        self.created.append(node)
        self.pods[body["metadata"]["name"]] = {**body, "status": self._ends.get(node, {"phase": "Succeeded"})}

    async def delete(self, _kind: type[Object], name: str, _namespace: str) -> None:
        del self.pods[name]


async def run(cluster: Cluster, *only: str) -> tuple[dict[str, str], list[str]]:
    said: list[str] = []
    left = await undo_runtimes(cast("Client", cluster), "gpu", SETTINGS, only=only, timeout=0, report=said.append)
    return dict(left), said


async def test_only_nodes_whose_agent_wrote_something_are_touched() -> None:
    cluster = Cluster({"a": True, "b": True}, ("a",), {})
    left, said = await run(cluster)
    assert (left, said, cluster.created) == ({}, ["a: taken back."], ["a"])
    assert cluster.pods == {}, "no pod stays"


async def test_nodes_that_are_away_or_gone_are_named_and_wait_for_nobody() -> None:
    cluster = Cluster({"a": True, "b": False}, ("a", "b", "scrapped"), {})
    left, said = await run(cluster)
    assert left == {"b": "the node is not ready"}
    assert "No longer in the cluster, and left as they are: scrapped." in said
    assert cluster.created == ["a"]


async def test_what_a_pod_failed_with_is_told() -> None:
    ended = {"state": {"terminated": {"message": "Error: /etc/containerd/config.toml was left alone.\n"}}}
    failed: dict[str, dict[str, Any]] = {
        "a": {"phase": "Failed", "containerStatuses": [ended]},
        "b": {"phase": "Pending"},
    }
    cluster = Cluster({"a": True, "b": True}, ("a", "b"), failed)
    left, said = await run(cluster)
    assert left == {"a": "Error: /etc/containerd/config.toml was left alone.", "b": "its pod is Pending"}
    assert said == [f"{node}: {why}" for node, why in left.items()]
    assert cluster.pods == {}


async def test_a_pod_that_the_cluster_refuses_keeps_no_other_node_waiting() -> None:
    cluster = Cluster({"a": True, "b": True}, ("a", "b"), {}, refuses=("a",))
    left, said = await run(cluster)
    assert left == {"a": "its pod is refused: exceeded quota: small"}
    assert said == ["a: its pod is refused: exceeded quota: small", "b: taken back."]
    assert cluster.pods == {}


async def test_a_person_may_name_a_node_of_which_nothing_was_reported() -> None:
    cluster = Cluster({"a": True, "b": True}, (), {})
    assert (await run(cluster, "b"))[1] == ["b: taken back."]


def test_the_pod_undoes_what_the_agent_wrote_on_its_node_and_has_no_token() -> None:
    spec = undo_pod("worker-7", SETTINGS, 90)["spec"]
    (container,) = spec["containers"]
    assert spec["nodeName"] == "worker-7"
    assert spec["automountServiceAccountToken"] is False
    assert {"undo", "--by-agent", "--restart"} <= set(container["command"])
    assert pod_name("n" * 253) != pod_name("n" * 252)
    assert len(pod_name("n" * 253)) <= 63
