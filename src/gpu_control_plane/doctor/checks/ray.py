"""What Ray says: which operator looks after it, what waits, and dashboards that do not answer."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from gpu_control_plane.api.ray.cluster import ClusterCondition
from gpu_control_plane.api.ray.job import JobDeploymentStatus, JobFailedReason
from gpu_control_plane.api.ray.names import GROUP
from gpu_control_plane.api.ray.reasons import ServiceReason
from gpu_control_plane.api.ray.service import ServiceCondition
from gpu_control_plane.api.ray.view import RayClusterView
from gpu_control_plane.doctor.check import Found, Group, check
from gpu_control_plane.doctor.findings import Evidence, Severity, command_in, of_condition, reference
from gpu_control_plane.doctor.snapshot import Snapshot, Source
from gpu_control_plane.kube.conditions import FALSE, TRUE, find, is_true
from gpu_control_plane.kube.lease_watch import LeaseHolder, active_holder, observe
from gpu_control_plane.kube.sentences import counted

LONG: Final = timedelta(minutes=10)
"""How long something may wait before that is a finding."""
_KINDS: Final = ("rayclusters", "rayjobs", "rayservices")
_PLAN: Final = "kubectl gpu migrate ray plan"


def _kuberay(snapshot: Snapshot) -> LeaseHolder | None:
    return active_holder((observe(lease, snapshot.now) for lease in snapshot.kuberay_leases), snapshot.now)


def _writes_here(cluster: RayClusterView) -> bool:
    """Whether our operator carries it out: it writes conditions that KubeRay does not have."""
    held = cluster.status.conditions
    return find(held, ClusterCondition.VALID) is not None and not _reports_other_operator(cluster)


def _reports_other_operator(cluster: RayClusterView) -> bool:
    return is_true(cluster.status.conditions, ClusterCondition.OTHER_OPERATOR_ACTIVE)


@check(
    "ray-two-operators",
    "KubeRay's operator and this one both look after Ray",
    Group.RAY,
    Severity.CRITICAL,
    Source.KUBERAY_LEASES,
    Source.RAY_CLUSTERS,
    settles=True,
)
def ray_two_operators(snapshot: Snapshot) -> Iterator[Found]:
    """It writes nothing where it believes the Lease: a namespace that it was not told of is not believed."""
    holder = _kuberay(snapshot)
    written = [each for each in snapshot.ray_clusters if _writes_here(each)]
    if holder is None or not written:
        return
    yield Found(
        about=f"KubeRay's operator in {holder.namespace}",
        sentence=f"It is active, and this operator does not believe its Lease there: both write "
        f"{counted(len(written), 'RayCluster')}. Set ray.kuberayNamespaces={{{holder.namespace}}} (helm upgrade). "
        "If nobody has installed KubeRay there, a user has written that Lease: delete it.",
        evidence=Evidence(f"Lease/{holder.namespace}/ray-operator-leader", "spec.holderIdentity", holder.holder),
        fix=_PLAN,
    )


@check(
    "ray-kuberay-active",
    "KubeRay's operator is in charge, and this one writes nothing",
    Group.RAY,
    Severity.INFO,
    Source.KUBERAY_LEASES,
    Source.RAY_CLUSTERS,
)
def ray_kuberay_active(snapshot: Snapshot) -> Iterator[Found]:
    holder = _kuberay(snapshot)
    if holder is None or not any(map(_reports_other_operator, snapshot.ray_clusters)):
        return
    yield Found(
        about=f"KubeRay's operator in {holder.namespace}",
        sentence="It looks after Ray; pools are counted by its rules. This operator takes over when it is told to.",
        evidence=Evidence(f"Lease/{holder.namespace}/ray-operator-leader", "spec.holderIdentity", holder.holder),
        fix=_PLAN,
    )


@check(
    "ray-crd-incomplete",
    "A CRD of Ray does not serve the version that this operator reads",
    Group.RAY,
    Severity.WARNING,
    Source.RAY_CRDS,
)
def ray_crd_incomplete(snapshot: Snapshot) -> Iterator[Found]:
    """An old release of KubeRay has served v1alpha1 alone; its CRDs are not replaced unless that is asked for."""
    for crd in snapshot.ray_crds:
        versions = [each.name for each in crd.spec.versions if each.served]
        if crd.name.removesuffix(f".{GROUP}") in _KINDS and "v1" not in versions:
            yield Found(
                about=crd.name,
                sentence=f"It serves {', '.join(versions) or 'nothing'}, and this operator reads v1: it does nothing "
                "for such objects. Set crds.takeOver=true once (helm upgrade).",
                evidence=Evidence(reference(crd), "spec.versions[].name", ", ".join(versions)),
                fix="python -m gpu_control_plane.installation.crds --take-over",
            )


@check(
    "ray-never-served",
    "A pool could never serve the workers of a Ray cluster",
    Group.RAY,
    Severity.WARNING,
    Source.RAY_CLUSTERS,
)
def ray_never_served(snapshot: Snapshot) -> Iterator[Found]:
    for cluster in snapshot.ray_clusters:
        for kind in (ClusterCondition.VALID, ClusterCondition.CAPACITY):
            said = find(cluster.status.conditions, kind)
            if said is not None and said.status == FALSE:
                yield Found(
                    about=f"RayCluster {cluster.key}",
                    sentence=f"It cannot be carried out, however long it waits: {said.message or said.reason}",
                    evidence=of_condition(cluster, said),
                    fix=command_in(said.message, _describe("raycluster", cluster.name, cluster.metadata.namespace)),
                )


@check("ray-job-waits", "A RayJob has waited long to begin", Group.RAY, Severity.WARNING, Source.RAY_JOBS)
def ray_job_waits(snapshot: Snapshot) -> Iterator[Found]:
    for job in snapshot.ray_jobs:
        since = job.status.start_time or job.metadata.creation_timestamp
        if job.status.job_deployment_status == JobDeploymentStatus.INITIALIZING and _is_late(since, snapshot.now):
            yield Found(
                about=f"RayJob {job.key}",
                sentence="Its cluster has not come up for more than ten minutes.",
                evidence=Evidence(reference(job), "status.jobDeploymentStatus", job.status.job_deployment_status),
                fix=f"kubectl gpu ray -n {job.metadata.namespace}",
            )


@check(
    "ray-dashboard-silent",
    "The dashboard of a RayJob does not answer",
    Group.RAY,
    Severity.WARNING,
    Source.RAY_JOBS,
    settles=True,
)
def ray_dashboard_silent(snapshot: Snapshot) -> Iterator[Found]:
    for job in snapshot.ray_jobs:
        since = job.status.job_status_check_failure_start_time
        lost = job.status.reason == JobFailedReason.LOST
        if since is not None and job.status.job_deployment_status == JobDeploymentStatus.RUNNING and not lost:
            yield Found(
                about=f"RayJob {job.key}",
                sentence=f"The dashboard of its cluster has not answered since {since:%H:%M} UTC: the head is not "
                "there, or a NetworkPolicy keeps our controllers from it.",
                evidence=Evidence(reference(job), "status.jobStatusCheckFailureStartTime", since.isoformat()),
                fix=_describe("raycluster", job.status.ray_cluster_name, job.metadata.namespace),
            )


@check(
    "ray-service-not-ready",
    "A RayService has not answered for long",
    Group.RAY,
    Severity.WARNING,
    Source.RAY_SERVICES,
)
def ray_service_not_ready(snapshot: Snapshot) -> Iterator[Found]:
    for service in snapshot.ray_services:
        held = service.status.conditions
        ready = find(held, ServiceCondition.READY)
        stopped = any(is_true(held, kind) for kind in (ServiceCondition.SUSPENDING, ServiceCondition.SUSPENDED))
        if ready is None or ready.status == TRUE or stopped:
            continue
        if _is_late(ready.last_transition_time, snapshot.now):
            edited = ready.reason == ServiceReason.VALIDATION_FAILED and service.status.num_serve_endpoints > 0
            what = "It goes on as it was, since its spec cannot be carried out" if edited else "It answers no requests"
            yield Found(
                about=f"RayService {service.key}",
                sentence=f"{what}: {ready.message or ready.reason}",
                evidence=of_condition(service, ready),
                fix=command_in(ready.message, f"kubectl gpu ray -n {service.metadata.namespace}"),
            )


def _is_late(since: datetime | None, now: datetime) -> bool:
    return since is not None and now - since > LONG


def _describe(kind: str, name: str, namespace: str | None) -> str:
    return f"kubectl -n {namespace} describe {kind} {name}"
