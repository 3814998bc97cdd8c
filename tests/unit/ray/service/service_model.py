"""A small model of a cluster with one RayService: pods come and go, cards are taken, Ray Serve answers, all by the will
of a test. The decisions in it are the real ones, and every write may be the last before a crash."""

import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import HEAD_GROUP, Annotation, Label, NodeType
from gpu_control_plane.api.ray.service import RayService, ServiceCondition
from gpu_control_plane.kube.conditions import condition, find, is_true
from gpu_control_plane.kube.objects import Condition, Object, controlled_by
from gpu_control_plane.ray.cluster.pod_plan import PodSnapshot, plan_pods
from gpu_control_plane.ray.cluster.pod_state import GANG_GATE, is_gated
from gpu_control_plane.ray.cluster.worker_groups import PodOrder
from gpu_control_plane.ray.demand import group_pods, group_replicas
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.owned import OwnedService, RayPod, is_owned
from gpu_control_plane.ray.service.actions import (
    Action,
    CreateCluster,
    Decision,
    Delete,
    Ensure,
    LabelHead,
    PatchCluster,
    RemoveFinalizer,
    WriteStatus,
)
from gpu_control_plane.ray.service.backend import serve_service_of
from gpu_control_plane.ray.service.decide import decide
from gpu_control_plane.ray.service.gateway import Gateway, GatewayView, HTTPRoute, weights
from gpu_control_plane.ray.service.gateway_use import is_divided
from gpu_control_plane.ray.service.handover import pod_units, pods_to_go, replica_units, total, with_pods_to_go
from gpu_control_plane.ray.service.handover_budget import HandoverBudget
from gpu_control_plane.ray.service.observe import snapshot_of
from gpu_control_plane.ray.service.serve_calls import ServeCalls
from gpu_control_plane.ray.service.snapshot import Snapshot, Timings
from unit.ray.service.builders import NO_POOL, POOL, START, group, service_of, template
from unit.ray.service.ray_serve_model import RayServeModel

_QUIET = 8


class RayServiceModel:
    """The cluster of one test."""

    def __init__(self, service: RayService, *, cards: int = 100, seed: int = 0, others: int = 0) -> None:
        self.service = service
        self.now = START
        self.cards = cards
        self.others = others
        """Cards that others hold."""
        self.start_together = False
        """Whether workers of a group wait until there are cards for all of them."""
        self.promised = 0
        """Cards that the pool keeps for pods that wait for a node."""
        self.unschedulable: set[str] = set()
        """Workers, by image, that no node suits, whatever it has."""
        self.quota = 10**6
        """Cards that pods of the namespace may ask for."""
        self.clusters: dict[str, RayCluster] = {}
        self.pods: dict[str, RayPod] = {}
        self.scheduled: set[str] = set()
        self.services: dict[str, OwnedService] = {}
        self.gateway: Gateway | None = None
        self.route: HTTPRoute | None = None
        self.gateway_api = self.gateway_known = True
        self.action_events: list[str] = []
        self.events: list[str] = []
        self.notes: list[str] = []
        self.before: list[Callable[[Action], None]] = []
        self.checks: list[Callable[[Action], None]] = []
        """Called before and after each write."""
        self.rng = random.Random(seed)
        self._count = 0
        self.serve = RayServeModel(self)
        self._serve_calls = ServeCalls(
            None,  # type: ignore[arg-type]
            self.serve,
            None,  # type: ignore[arg-type]
            lambda pod, _port: f"http://{pod.name}",
            poll_seconds=2,
        )
        self.options = RayOptions()
        self.timings = Timings()

    # The operator.

    def snapshot(self) -> Snapshot:
        s = snapshot_of(
            self.service,
            clusters=self.clusters.values(),
            pods=lambda _cluster: self.pods.values(),
            services=lambda _owner: self.services.values(),
            endpoints=self.endpoints(),
            gateway=self.gateway_view() if is_divided(self.service) else GatewayView(),
            pools=(self.pool(),),
            rng=self.rng,
            now=self.now,
            options=self.options,
            timings=self.timings,
        )
        return self._serve_calls.observed(s)

    def pool(self) -> GPUPool:
        free = self.free()
        reserved = min(self.promised, free)
        units = {"total": self.cards, "used": self.cards - free, "reserved": reserved, "available": free - reserved}
        capacity = [{"name": POOL, **units, "faulted": 0}]
        body = {"metadata": {"name": "pool-a"}, "spec": {}, "status": {"capacity": capacity}}
        return msgspec.convert(body, GPUPool)

    def gateway_view(self) -> GatewayView:
        if not self.gateway_known:
            return GatewayView(known=False)
        return GatewayView(served=self.gateway_api, gateway=self.gateway, route=self.route)

    def reconcile(self, crash_after: int | None = None) -> Decision:
        """Decide and write; after `crash_after` writes the process is gone."""
        decision = decide(self.snapshot())
        before = self.service.status
        writes = 0
        for action in decision.actions:
            if crash_after is not None and writes >= crash_after:
                return decision
            for look in self.before:
                look(action)
            writes += self.apply(action)
            if (event := getattr(action, "event", None)) is not None:
                self.action_events.append(event.reason)
            for check in self.checks:
                check(action)
        if self.service.status is not before:
            self.events += [event.reason for event in decision.events]
            self.notes += [event.note for event in decision.events]
        return decision

    def apply(self, action: Action) -> int:
        match action:
            case CreateCluster():
                name = action.manifest["metadata"]["name"]
                if name in self.clusters:
                    assert is_owned(self.clusters[name], self.service)
                    return 1
                made = msgspec.convert(action.manifest, RayCluster)
                meta = replace(
                    made.metadata, uid=self._uid(), resource_version=self._uid(), creation_timestamp=self.now
                )
                self.clusters[name] = replace(made, metadata=meta)
            case PatchCluster():
                held = self.clusters.get(action.cluster.name)
                if held is None:
                    return 1
                assert not action.guarded or held.metadata.resource_version == action.cluster.metadata.resource_version
                body = merge(msgspec.to_builtins(held), action.body)
                made = msgspec.convert(body, RayCluster)
                self.clusters[held.name] = replace(made, metadata=replace(made.metadata, resource_version=self._uid()))
            case Delete():
                self.delete(action.item)
            case Ensure():
                return self._ensure(action)
            case LabelHead():
                pod = self.pods[action.pod.name]
                labels = {**pod.metadata.labels, Label.SERVE.value: "true" if action.serves else "false"}
                self.pods[pod.name] = replace(pod, metadata=replace(pod.metadata, labels=labels))
            case WriteStatus():
                same = replace(action.status, last_update_time=None) == replace(
                    self.service.status, last_update_time=None
                )
                if same:
                    return 0
                self.service = replace(self.service, status=action.status)
            case RemoveFinalizer():
                kept = tuple(held for held in self.service.metadata.finalizers if held != action.name)
                self.service = replace(self.service, metadata=replace(self.service.metadata, finalizers=kept))
        return 1

    def delete(self, item: Object) -> None:
        if isinstance(item, RayCluster):
            self.clusters.pop(item.name, None)
            for pod in [pod for pod in self.pods.values() if is_owned(pod, item)]:
                self.pods[pod.name] = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=self.now))
        elif isinstance(item, OwnedService):
            self.services.pop(item.name, None)
        elif isinstance(item, Gateway):
            self.gateway = None
        elif isinstance(item, HTTPRoute):
            self.route = None

    def _ensure(self, action: Ensure) -> int:
        made: Any = msgspec.convert(action.manifest, action.kind)
        if action.held is not None and action.held.spec == made.spec:  # type: ignore[attr-defined]
            return 0
        uid = action.held.metadata.uid if action.held is not None else self._uid()
        made = replace(made, metadata=replace(made.metadata, uid=uid))
        if isinstance(made, OwnedService):
            self.services[made.name] = made
        else:
            accepted = [cond(kind, self.now) for kind in ("Accepted", "Programmed", "ResolvedRefs")]
            if isinstance(made, Gateway):
                self.gateway = replace(made, status=msgspec.convert({"conditions": accepted}, type(made.status)))
            else:
                status = msgspec.convert({"parents": [{"conditions": accepted}]}, type(made.status))
                self.route = replace(made, status=status)
        return 1

    def _uid(self) -> str:
        self._count += 1
        return f"{self._count}"

    # What is true.

    @property
    def backend(self) -> str:
        held = self.services.get(serve_service_of(self.service))
        return str(held.spec["selector"][Label.CLUSTER.value]) if held is not None else ""

    @property
    def active(self) -> str:
        held = self.service.status.active_service_status
        return held.ray_cluster_name if held is not None else ""

    @property
    def pending(self) -> str:
        held = self.service.status.pending_service_status
        return held.ray_cluster_name if held is not None else ""

    def ready(self) -> bool:
        return is_true(self.service.status.conditions, ServiceCondition.READY)

    def endpoints(self) -> int:
        held = self.clusters.get(self.backend)
        return len(self.serving(held)) if held is not None else 0

    def serving(self, cluster: RayCluster) -> list[RayPod]:
        """Pods that answer."""
        return [
            pod
            for pod in self.pods.values()
            if is_owned(pod, cluster)
            and pod.ready
            and not pod.deleting
            and pod.metadata.labels.get(Label.SERVE.value) == "true"
        ]

    def can_serve(self, name: str) -> bool:
        """Whether requests to the cluster are answered for every deployment."""
        held = self.clusters.get(name)
        return (
            held is not None and bool(self.serving(held)) and self.serve.all_run(held) and self.serve.capacity(held) > 0
        )

    def workers(self, cluster: RayCluster, name: str, *, running: bool = True) -> list[RayPod]:
        return [
            pod
            for pod in self.pods.values()
            if is_owned(pod, cluster) and pod.group == name and (not running or (pod.running and not pod.deleting))
        ]

    def free(self) -> int:
        """Cards that no pod holds."""
        held = sum(self._units(pod) for pod in self.pods.values() if pod.name in self.scheduled)
        return max(0, self.cards - self.others - held)

    def _needed_at_once(self, pod: RayPod) -> int:
        """What has to be free for it; of a worker that waits for its group, for all that do."""
        gated = [each for each in self.pods.values() if is_gated(each) and each.name not in self.scheduled]
        group = [each for each in gated if (each.cluster, each.group) == (pod.cluster, pod.group)]
        return sum(self._units(each) for each in (group if is_gated(pod) else [pod]))

    def _asked(self) -> int:
        return sum(self._units(pod) for pod in self.pods.values())

    def both_have_workers(self) -> bool:
        """Whether both clusters of an upgrade have workers, or ask for them."""
        held = [self.clusters.get(name) for name in (self.active, self.pending)]
        return all(
            each is not None
            and any(
                group_pods(one) or self.workers(each, one.group_name, running=False)
                for one in each.spec.worker_group_specs
            )
            for each in held
        )

    def why(self) -> list[str]:
        return [f"{held.type}={held.status} {held.reason} {held.message}" for held in self.service.status.conditions]

    def demand_of_clusters(self) -> dict[str, int]:
        """Cards that all clusters of the service ask for or have."""
        pools = (POOL,)
        wanted: list[tuple[Mapping[str, int], int]] = []
        for each in self.clusters.values():
            heads = [pod for pod in self.pods.values() if is_owned(pod, each) and pod.is_head]
            wanted.append((pod_units(each.spec.head_group_spec.template, pools), max(1, len(heads))))
            for held in each.spec.worker_group_specs:
                there = -(-len(self.workers(each, held.group_name, running=False)) // held.num_of_hosts)
                asked = group_pods(held) // held.num_of_hosts
                wanted.append((replica_units(held, pools), max(asked, there)))
        return total(wanted)

    def budget(self) -> HandoverBudget | None:
        held = self.clusters.get(self.pending)
        return (
            HandoverBudget.read(held.metadata.annotations.get(Annotation.HANDOVER.value, ""))
            if held is not None
            else None
        )

    def _units(self, pod: RayPod) -> int:
        limits = [container.resources.limits for container in pod.spec.containers]
        return sum(int(limit.get(POOL, 0)) + int(limit.get(NO_POOL, 0)) for limit in limits)

    def head_runs(self, cluster: RayCluster) -> bool:
        return any(pod.is_head and pod.running and is_owned(pod, cluster) for pod in self.pods.values())

    # The cluster around it.

    def cluster_controller(self) -> None:
        """Pods as the specs of clusters ask for them, and what the status says of the head."""
        for each in list(map(self._autoscaled, self.clusters.values())):
            templates = {held.group_name: held.template for held in each.spec.worker_group_specs}
            plan = plan_pods(
                PodSnapshot(
                    cluster=each,
                    pods=tuple(pod for pod in self.pods.values() if is_owned(pod, each)),
                    template_hashes={},
                    recreate_hash="",
                    version="",
                    gated=frozenset(templates if self.start_together else ()),
                    now=self.now,
                ),
                self.rng,
            )
            refused = False
            for removal in plan.removals:
                self.delete_pod(removal.pod.name)
            for order in plan.orders:
                template = templates.get(order.group, each.spec.head_group_spec.template)
                fits = self._asked() + pod_units(template, (POOL,)).get(POOL, 0) <= self.quota
                refused = refused or not fits
                if fits:
                    self._make_pod(each, order, template)
            ready = condition(
                each.status.conditions, "HeadPodReady", self.head_runs(each), "HeadPodRunningAndReady", now=self.now
            )
            conditions: tuple[Condition, ...] = (ready,)
            if refused:
                message = "workers: forbidden: exceeded quota: gpu-pool-a"
                failure = condition(
                    each.status.conditions, "ReplicaFailure", True, "FailedCreateWorkerPod", message, now=self.now
                )
                conditions = (ready, failure)
            if [held.status for held in each.status.conditions] != [held.status for held in conditions]:
                version = replace(each.metadata, resource_version=self._uid())
                self.clusters[each.name] = replace(
                    each, metadata=version, status=replace(each.status, conditions=conditions)
                )

    def _autoscaled(self, cluster: RayCluster) -> RayCluster:
        """Ray's autoscaler brings as many workers as replicas need, two for all of them, and names those that go. It
        does nothing while one that was named is still there."""
        if not cluster.spec.enable_in_tree_autoscaling or cluster.metadata.uid not in self.serve.configs:
            return cluster
        wanted = -(-2 * self.serve.capacity(cluster) // 100)
        pods = [pod for pod in self.pods.values() if is_owned(pod, cluster)]
        named = {
            name
            for each in cluster.spec.worker_group_specs
            for name in (each.scale_strategy.workers_to_delete if each.scale_strategy is not None else ())
        }
        if named & {pod.name for pod in pods}:
            return cluster
        scaled = (replace(each, replicas=wanted) for each in cluster.spec.worker_group_specs)
        groups = tuple(with_pods_to_go(each, pods_to_go(pods, each, group_replicas(each))) for each in scaled)
        if groups == cluster.spec.worker_group_specs:
            return cluster
        spec = replace(cluster.spec, worker_group_specs=groups)
        made = replace(cluster, spec=spec, metadata=replace(cluster.metadata, resource_version=self._uid()))
        self.clusters[cluster.name] = made
        return made

    def kubelet(self, *, only: int | None = None) -> None:
        """Schedule what fits, run what is scheduled, end what is deleted: all pods, or so many of them."""
        pods = sorted(self.pods.values(), key=lambda pod: pod.name)
        if only is not None:
            pods = self.rng.sample(pods, min(only, len(pods)))
        for pod in pods:
            if pod.deleting:
                del self.pods[pod.name]
                self.scheduled.discard(pod.name)
            elif pod.name not in self.scheduled:
                suits = pod.is_head or pod.spec.containers[0].image not in self.unschedulable
                if suits and self._needed_at_once(pod) <= self.free():
                    self.scheduled.add(pod.name)
                    self.pods[pod.name] = replace(pod, spec=replace(pod.spec, node_name="node"))
            else:
                self._run(pod)

    def settle(self, rounds: int = 60, *, step: timedelta = timedelta(seconds=30)) -> None:
        """Everything takes its course, without crashes, until it has been quiet for a while."""
        quiet = 0
        for _ in range(rounds):
            before = self.service, tuple(self.clusters.values()), tuple(self.pods.values())
            self.reconcile()
            self.cluster_controller()
            self.kubelet()
            self.now += step
            after = self.service, tuple(self.clusters.values()), tuple(self.pods.values())
            quiet = quiet + 1 if before == after else 0
            if quiet > _QUIET:
                return

    def change(self, **spec: Any) -> None:
        """Edit the spec of the service."""
        body = msgspec.to_builtins(self.service)
        body["spec"] |= spec
        made = msgspec.convert(body, RayService)
        meta = replace(self.service.metadata, generation=self.service.metadata.generation + 1)
        self.service = replace(made, metadata=meta)

    def change_cluster(self, *groups: dict[str, Any], image: str = "ray:1", **cluster: Any) -> None:
        self.change(
            rayClusterConfig={
                "headGroupSpec": {"template": template(image)},
                "workerGroupSpecs": [*groups],
                **cluster,
            }
        )

    def _make_pod(self, cluster: RayCluster, order: PodOrder, of: Mapping[str, Any]) -> None:
        head, identity = order.group == HEAD_GROUP, order.identity
        pod = f"{cluster.name}-{order.group}-{self._uid()}"
        owner = controlled_by(cluster.resource, cluster.name, cluster.metadata.uid)
        gates = [{"name": GANG_GATE}] if order.gated else []
        replica = {Label.REPLICA_NAME.value: identity.name, Label.HOST_INDEX.value: str(identity.host)}
        body = {
            "metadata": {
                "name": pod,
                "namespace": "ns",
                "uid": self._uid(),
                "creationTimestamp": self.now.isoformat(),
                "labels": {
                    Label.CLUSTER.value: cluster.name,
                    Label.GROUP.value: order.group,
                    Label.NODE_TYPE.value: (NodeType.HEAD if head else NodeType.WORKER).value,
                    Label.SERVE.value: "false" if head else "true",
                    **(replica if identity.name else {}),
                },
                "ownerReferences": [msgspec.to_builtins(owner)],
            },
            "spec": {**of["spec"], "schedulingGates": gates},
            "status": {"phase": "Pending"},
        }
        self.pods[pod] = msgspec.convert(body, RayPod)

    def delete_pod(self, name: str) -> None:
        pod = self.pods.get(name)
        if pod is not None and not pod.deleting:
            self.pods[name] = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=self.now))

    def _run(self, pod: RayPod) -> None:
        status = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
        self.pods[pod.name] = replace(pod, status=msgspec.convert(status, type(pod.status)))

    def shares(self) -> dict[str, int]:
        return dict(weights(self.route)) if self.route is not None else {}


def merge(held: Any, patch: Any) -> Any:
    """A JSON merge patch."""
    if not isinstance(patch, Mapping):
        return patch
    made = dict(held) if isinstance(held, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merge(made.get(key), value)
    return made


def cond(kind: str, now: datetime) -> dict[str, Any]:
    held: dict[str, Any] = msgspec.to_builtins(
        Condition(type=kind, status="True", reason="Test", message="", last_transition_time=now)
    )
    return held


def running(*groups: dict[str, Any], **given: Any) -> RayServiceModel:
    model = RayServiceModel(service_of(*(groups or (group(),)), **given))
    model.settle()
    assert model.ready()
    return model


def of_before(model: RayServiceModel, version: str) -> None:
    """All clusters have been made by another operator, or another release, whose hashes are not ours."""
    for held in list(model.clusters.values()):
        theirs = {Annotation.SPEC_HASH.value: "abc", Annotation.KUBERAY_VERSION.value: version}
        model.clusters[held.name] = replace(
            held, metadata=replace(held.metadata, annotations={**held.metadata.annotations, **theirs})
        )


def situation(model: RayServiceModel, kind: ServiceCondition) -> tuple[str, str]:
    held = find(model.service.status.conditions, kind)
    return (held.status, held.reason) if held is not None else ("", "")
