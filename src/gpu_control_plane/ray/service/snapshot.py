"""What a RayService is decided on: itself, its clusters with their pods and what Ray Serve says, and its Services."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

import msgspec

from gpu_control_plane.api.ray.cluster import ClusterCondition, RayCluster
from gpu_control_plane.api.ray.names import Annotation, Label
from gpu_control_plane.api.ray.reasons import ClusterReason
from gpu_control_plane.api.ray.service import RayService, ServedCluster
from gpu_control_plane.kube.conditions import TRUE, find, is_true
from gpu_control_plane.ray.dashboard.models import ServeDetails
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.owned import OwnedService, RayPod
from gpu_control_plane.ray.service.backend import serve_service_of
from gpu_control_plane.ray.service.gateway import GatewayView

NO_CLUSTER: Final = ServedCluster()
_QUOTA: Final = "exceeded quota"
"""As the API server says it."""


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting times."""

    deletion_delay: timedelta = timedelta(seconds=60)
    """How long a cluster that had requests stays, unless the spec sets its own delay."""
    scheduling_patience: timedelta = timedelta(seconds=30)
    """How long a pod may be without a node, before its cards are taken to be gone to other pods."""
    handover_patience: timedelta = timedelta(minutes=10)
    """How long workers that were handed over may take to answer, before more of them are."""


class ClusterView(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A RayCluster of the service."""

    cluster: RayCluster
    pods: tuple[RayPod, ...] = ()
    accepted: str = ""
    """Id of the configuration that Ray Serve has just accepted, to be written to an annotation of the cluster."""
    details: ServeDetails | None = None
    """What Ray Serve has reported since it accepted its last configuration."""
    trouble: str = ""
    """Why a call to Ray Serve failed, or none could be made."""
    refused: str = ""
    """Why it has not accepted its configuration."""
    head_serves: bool | None = None
    """Whether the head's proxy takes requests; None while that is not known."""

    @property
    def name(self) -> str:
        return self.cluster.name

    @property
    def deleting(self) -> bool:
        return self.cluster.deleting

    def annotation(self, name: Annotation) -> str:
        return self.cluster.metadata.annotations.get(name.value, "")

    @property
    def head_ready(self) -> bool:
        return is_true(self.cluster.status.conditions, ClusterCondition.HEAD_POD_READY)

    @property
    def over_quota_since(self) -> datetime | None:
        """Since when workers are not made because a quota of the namespace is used up; None if none is in the way."""
        held = find(self.cluster.status.conditions, ClusterCondition.REPLICA_FAILURE)
        refused = held is not None and held.status == TRUE and held.reason == ClusterReason.FAILED_CREATE_WORKER_POD
        return held.last_transition_time if held is not None and refused and _QUOTA in held.message else None

    @property
    def head(self) -> RayPod | None:
        return next((pod for pod in self.pods if pod.is_head and not pod.deleting), None)

    @cached_property
    def serving_pods(self) -> int:
        """Pods that may get requests and are ready for them."""
        return sum(
            pod.ready and not pod.deleting and pod.metadata.labels.get(Label.SERVE.value) == "true" for pod in self.pods
        )

    @property
    def applications_run(self) -> bool:
        """Whether there is an application, and all of them run."""
        found = self.details.applications if self.details is not None else {}
        return bool(found) and all(application.running for application in found.values())

    @property
    def deployments_run(self) -> bool:
        """Whether every deployment has a replica that runs."""
        found = self.details.applications.values() if self.details is not None else ()
        return bool(found) and all(
            application.running
            or (bool(application.deployments) and all(each.answers for each in application.deployments.values()))
            for application in found
        )

    @property
    def some_deployment_runs(self) -> bool:
        found = self.details.applications.values() if self.details is not None else ()
        return any(
            application.running or any(each.answers for each in application.deployments.values())
            for application in found
        )

    @property
    def is_failing(self) -> bool:
        """Whether more workers would not make it answer: an application has failed, or Ray Serve does not listen."""
        found = self.details.applications.values() if self.details is not None else ()
        return not found or any(application.failing for application in found)

    @property
    def ready(self) -> bool:
        """Whether it can take over: all applications run, and there is a pod for requests."""
        return not self.deleting and self.applications_run and self.serving_pods > 0

    @property
    def answers_all(self) -> bool:
        """Whether every deployment answers, if perhaps with fewer replicas than asked for."""
        return not self.deleting and self.deployments_run and self.serving_pods > 0

    @property
    def answers_some(self) -> bool:
        """Whether any deployment answers, as far as is known. While Ray Serve does not answer, the readiness of its
        pods alone counts: their probes ask the proxies."""
        return self.serving_pods > 0 and (self.details is None or self.some_deployment_runs)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Everything that a decision depends on, at one moment."""

    service: RayService
    clusters: tuple[ClusterView, ...] = ()
    """All RayClusters that belong to the service."""
    services: tuple[OwnedService, ...] = ()
    """All Services that belong to it or to its clusters."""
    endpoints: int = 0
    """Pods behind the Service of Serve that are ready."""
    gateway: GatewayView = GatewayView()
    free: Mapping[str, int] = {}
    """Units that a pod could have now, by the resource of a pool."""
    unheld: Mapping[str, int] = {}
    """Units that no pod holds, by the resource of a pool: those that are free, and those that are promised to pods that
    wait for a node, which may be pods of this service."""
    problems: str = ""
    """What is wrong with the spec, in sentences."""
    config: Mapping[str, Any] = {}
    """The configuration of Ray Serve, parsed."""
    other_operator: str = ""
    """Where another operator is active; empty if none is."""
    options: RayOptions = RayOptions()
    timings: Timings = Timings()
    suffix: str = "00000"
    """What the name of a new cluster would end in."""
    now: datetime

    def named(self, name: str) -> ClusterView | None:
        return next((each for each in self.clusters if name and each.name == name), None)

    @property
    def active_status(self) -> ServedCluster:
        return self.service.status.active_service_status or NO_CLUSTER

    @property
    def pending_status(self) -> ServedCluster:
        return self.service.status.pending_service_status or NO_CLUSTER

    @property
    def active(self) -> ClusterView | None:
        return self.named(self.active_status.ray_cluster_name)

    @property
    def pending(self) -> ClusterView | None:
        return self.named(self.pending_status.ray_cluster_name)

    @property
    def backend(self) -> str:
        """The cluster that requests go to, by the Service's selector; empty without a Service."""
        held = self.service_named(serve_service_of(self.service))
        selector = (held.spec.get("selector") or {}) if held is not None else {}
        return str(selector.get(Label.CLUSTER.value, ""))

    def service_named(self, name: str) -> OwnedService | None:
        return next((each for each in self.services if each.name == name), None)

    def without_role(self, *names: str) -> Iterable[ClusterView]:
        return (each for each in self.clusters if each.name not in names)
