"""Pods of a RayCluster as an API server would hold them: plans are carried out on it, one write after the other."""

import itertools
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import HEAD_GROUP, Annotation, Label, NodeType
from gpu_control_plane.ray.cluster.manifests import recreate_hash, template_hash
from gpu_control_plane.ray.cluster.pod_plan import PodPlan, PodSnapshot, plan_pods
from gpu_control_plane.ray.cluster.pod_state import GANG_GATE
from gpu_control_plane.ray.cluster.worker_groups import PodOrder
from gpu_control_plane.ray.owned import RayPod

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
VERSION = "this"


def hashes(cluster: RayCluster) -> dict[str, str]:
    groups = cluster.spec.worker_group_specs
    return {HEAD_GROUP: template_hash(cluster), **{each.group_name: template_hash(cluster, each) for each in groups}}


class PodWorld:
    """The pods of one cluster. Time passes by a second with every pod that is made."""

    def __init__(self, cluster: RayCluster, seed: int = 1) -> None:
        self.cluster = cluster
        self.pods: dict[str, RayPod] = {}
        self.rng = random.Random(seed)
        self.now = NOW
        self.gated: frozenset[str] = frozenset()
        self._numbers = itertools.count()

    def snapshot(self, **more: object) -> PodSnapshot:
        fields: dict[str, object] = {
            "cluster": self.cluster,
            "pods": tuple(self.pods.values()),
            "template_hashes": hashes(self.cluster),
            "recreate_hash": recreate_hash(self.cluster.spec),
            "version": VERSION,
            "gated": self.gated,
            "now": self.now,
        }
        return PodSnapshot(**{**fields, **more})  # type: ignore[arg-type]

    def plan(self, **more: object) -> PodPlan:
        return plan_pods(self.snapshot(**more), self.rng)

    def writes(self, plan: PodPlan) -> Iterable[Callable[[], object]]:
        """What carries the plan out, write by write."""
        for removal in plan.removals:
            yield partial(self.delete, removal.pod.name)
        for order in plan.orders:
            yield partial(self.make, order)

    def carry_out(self, plan: PodPlan) -> None:
        for write in self.writes(plan):
            write()

    def settle(self, rounds: int = 50) -> int:
        """Plan, carry out and let pods run, until nothing is planned; how often that took."""
        for count in range(rounds):
            plan = self.plan()
            starting = any(pod.status.phase == "Pending" for pod in self.pods.values())
            if not plan.removals and not plan.orders and not starting:
                return count
            self.carry_out(plan)
            self.all_run()
        raise AssertionError("it never comes to rest")

    def make(self, order: PodOrder) -> RayPod:
        self.now += timedelta(seconds=1)
        head = order.group == HEAD_GROUP
        name = f"{order.group}-{next(self._numbers)}"
        labels = {
            Label.CLUSTER.value: self.cluster.name,
            Label.GROUP.value: order.group,
            Label.NODE_TYPE.value: (NodeType.HEAD if head else NodeType.WORKER).value,
        }
        if not head:
            labels[Label.REPLICA_INDEX.value] = str(order.identity.index)
        if order.identity.name:
            labels |= {
                Label.REPLICA_NAME.value: order.identity.name,
                Label.HOST_INDEX.value: str(order.identity.host),
            }
        annotations = {Annotation.TEMPLATE_HASH.value: hashes(self.cluster)[order.group]}
        if head:
            annotations[Annotation.RECREATE_HASH.value] = recreate_hash(self.cluster.spec)
            annotations[Annotation.KUBERAY_VERSION.value] = VERSION
        body = {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"uid-{name}",
                "labels": labels,
                "annotations": annotations,
                "creationTimestamp": self.now.isoformat(),
            },
            "spec": {
                "restartPolicy": "Always",
                "containers": [{"name": "ray"}],
                "schedulingGates": [{"name": GANG_GATE}] if order.gated else [],
            },
            "status": {"phase": "Pending"},
        }
        pod = msgspec.convert(body, RayPod)
        self.pods[name] = pod
        return pod

    def change(self, name: str, **status: object) -> None:
        pod = self.pods[name]
        held = msgspec.to_builtins(pod.status) | status
        self.pods[name] = replace(pod, status=msgspec.convert(held, type(pod.status)))

    def runs(self, name: str, *, ready: bool = True) -> None:
        pod = self.pods[name]
        self.pods[name] = replace(pod, spec=replace(pod.spec, node_name="node", scheduling_gates=()))
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        self.change(name, phase="Running", podIP="10.0.0.1", conditions=conditions)

    def all_run(self) -> None:
        for name, pod in list(self.pods.items()):
            if pod.status.phase == "Pending":
                self.runs(name)

    def fails(self, name: str) -> None:
        self.change(name, phase="Failed")

    def delete(self, name: str) -> None:
        self.pods.pop(name, None)

    def begins_to_go(self, name: str) -> None:
        pod = self.pods[name]
        self.pods[name] = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=self.now))

    def of(self, group: str) -> list[RayPod]:
        return [pod for pod in self.pods.values() if pod.group == group]

    def with_spec(self, cluster: RayCluster) -> None:
        """The spec changes; what is known of the cluster stays."""
        self.cluster = replace(cluster, status=self.cluster.status)
