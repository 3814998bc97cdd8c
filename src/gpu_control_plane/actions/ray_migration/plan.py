"""What would change if our operator took over from KubeRay's. Pure: the operator's own decisions on what there is."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from gpu_control_plane.actions.ray_migration.installation import RayInstallation, RaySettings, kuberay_settings
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.cronjob import RayCronJob
from gpu_control_plane.api.ray.job import JobDeploymentStatus, RayJob
from gpu_control_plane.api.ray.names import LEASE, MANAGED_BY_MULTIKUEUE
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube.objects import Object, controller_of
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.migration.deployment import Deployment
from gpu_control_plane.ray.cluster.manifests.hashes import recreate_hash
from gpu_control_plane.ray.cluster.pod_plan import PodPlan, PodSnapshot, plan_pods
from gpu_control_plane.ray.cluster.worker_groups import Why
from gpu_control_plane.ray.cronjob.decide import CronSnapshot, decide
from gpu_control_plane.ray.options import OPERATOR_VERSION, RayOptions
from gpu_control_plane.ray.options_from import DOMAIN, DURATIONS, SWITCHES
from gpu_control_plane.ray.owned import RayPod, is_owned
from gpu_control_plane.ray.service.roles import decide_roles
from gpu_control_plane.ray.service.snapshot import ClusterView, Snapshot
from gpu_control_plane.ray.settings import Settings
from gpu_control_plane.rules.ray.cluster import cluster_problems
from gpu_control_plane.rules.ray.cronjob import cronjob_problems
from gpu_control_plane.rules.ray.filled_gpus import as_written
from gpu_control_plane.rules.ray.job import job_problems
from gpu_control_plane.rules.ray.problem import sentences
from gpu_control_plane.rules.ray.service import service_problems
from gpu_control_plane.settings import format_duration, waiting_times

_ENDED: Final = frozenset(
    {JobDeploymentStatus.COMPLETE, JobDeploymentStatus.FAILED, JobDeploymentStatus.VALIDATION_FAILED}
)
_OF_PODS_THAT_RUN: Final = frozenset({Why.GROUP_GONE, Why.OUTDATED, Why.DOUBLE_HEAD, Why.SURPLUS})
"""Reasons for which KubeRay's operator might have left pods alone."""
_STEADY: Final = "it goes on as it is"
_WAITS: Final = tuple(wait for wait in waiting_times(Settings) if wait.field in DURATIONS.values())
"""Waiting times that KubeRay's operator has, too, with the same defaults."""


class RayObjectChange(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What becomes of one object of Ray."""

    kind: str
    namespace: str
    name: str
    pods: int
    """Pods that it has, or that its clusters have."""
    outcome: str
    harmful: bool = False
    """Whether something that runs would end, or would not go on."""


class RayMigrationPlan(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What would change, and what has to be done before."""

    holder: str | None
    """The active replica of KubeRay's operator; None if there is none."""
    ours: str | None
    """The leader of our controllers; None if they do not run."""
    operators: tuple[str, ...]
    """Deployments of KubeRay's operator, as namespace/name."""
    problems: tuple[str, ...]
    """Why a take-over would do harm, and what to change."""
    todo: tuple[str, ...]
    objects: tuple[RayObjectChange, ...]


def plan_ray_migration(found: RayInstallation) -> RayMigrationPlan:
    """Work out what a take-over would lead to."""
    changes = tuple(_changes(found))
    harmed = (each for each in changes if each.harmful)
    harm = (f"{each.kind} {each.namespace}/{each.name}: {each.outcome.rstrip('.')}." for each in harmed)
    return RayMigrationPlan(
        holder=found.kuberay_holder.holder if found.kuberay_holder else None,
        ours=found.our_holder.holder if found.our_holder else None,
        operators=tuple(str(each.key.namespace) + "/" + each.name for each in found.deployments),
        problems=(*_problems(found), *harm),
        todo=tuple(_todo(found)),
        objects=changes,
    )


def _problems(found: RayInstallation) -> Iterator[str]:
    release = found.release
    if release is None:
        return
    if not release.ray:
        yield "This operator is installed with ray.enabled=false: nothing would look after Ray. Set it (helm upgrade)."
        return
    places = {each.metadata.namespace or "" for each in found.deployments}
    places |= {found.kuberay_holder.namespace} if found.kuberay_holder else set()
    for place in sorted(place for place in places if not release.trusted.include(place)):
        yield (
            f"KubeRay's operator is in {place}, where this operator does not believe its Lease: both write. Set "
            f"ray.kuberayNamespaces={{{place}}} (helm upgrade). If nobody has installed KubeRay there, somebody else "
            f"has written that Lease: kubectl -n {place} delete lease {LEASE}."
        )
    left = {each.metadata.namespace or "" for each in _objects(found) if not release.settings.watches(each)}
    if left:
        yield (
            f"Nobody would look after Ray in {', '.join(sorted(left))}: ray.watchNamespace does not name it. Add it "
            "(helm upgrade)."
        )
    for one in found.deployments:
        theirs = _settings_of(found, one)
        if theirs is None:
            yield (
                f"KubeRay's operator in {one.metadata.namespace} has a configuration file that is in no ConfigMap of "
                "its pods: which namespaces it watches is not known here. Compare its settings by hand, then --force."
            )
            continue
        if theirs.cluster_domain != release.settings.cluster_domain:
            yield (
                f"KubeRay's operator in {one.metadata.namespace} finds heads under the domain {theirs.cluster_domain}, "
                f"and this one under {release.settings.cluster_domain}: new workers would not reach theirs, and "
                "RayJobs that run would fail within minutes. "
                f"Set ray.env.{DOMAIN}={theirs.cluster_domain} (helm upgrade)."
            )
        news = Counter(
            each.metadata.namespace or ""
            for each in _objects(found)
            if release.settings.watches(each) and not theirs.watches(each)
        )
        for place, number in sorted(news.items()):
            yield (
                f"KubeRay's operator does not look after {place}, and this one would begin to: "
                f"{counted(number, 'object')} of Ray there would start. Name the namespaces in ray.watchNamespace."
            )


def _todo(found: RayInstallation) -> Iterator[str]:
    if found.release is None:
        yield "Install this operator with ray.enabled=true (helm install)."
        return
    for one in found.deployments:
        if (theirs := _settings_of(found, one)) is None:
            continue
        if one.replicas and not theirs.holds_lease:
            yield (
                f"KubeRay's operator in {one.metadata.namespace} holds no Lease (leaderElectionEnabled=false): this "
                "one does not know of it, and both write. Take over at once, or let it hold one."
            )
        yield from _differences(theirs, found.release.settings)


def _settings_of(found: RayInstallation, deployment: Deployment) -> RaySettings | None:
    """None if they are in a file that cannot be read."""
    if deployment.key not in found.configurations:
        return kuberay_settings(deployment)
    configuration = found.configurations[deployment.key]
    return kuberay_settings(deployment, configuration) if configuration is not None else None


def _differences(theirs: RaySettings, ours: RaySettings) -> Iterator[str]:
    """Settings that say something else here, by which pods that are made later would differ."""
    if theirs.batch_scheduler != ours.batch_scheduler:
        yield f"Set ray.batchScheduler.name={theirs.batch_scheduler or '""'}: KubeRay's operator has it so."
    if theirs.use_kubernetes_proxy != ours.use_kubernetes_proxy:
        yield f"Set ray.useKubernetesProxy={str(theirs.use_kubernetes_proxy).lower()}: KubeRay's operator has it so."
    if theirs.pod_defaults and not ours.pod_defaults:
        yield "Set ray.configuration: KubeRay's operator gives every pod of Ray more than its template says."
    usual = RayOptions()
    for name, option in SWITCHES.items():
        default = str(getattr(usual, option)).lower()
        wanted = theirs.switches.get(name, default)
        if wanted != ours.switches.get(name, default):
            yield f'Set ray.env.{name}="{wanted}": KubeRay\'s operator has it so.'
    for wait in _WAITS:
        lasting = theirs.waits.get(wait.name, wait.default)
        if lasting != ours.waits.get(wait.name, wait.default):
            yield f"Set controller.timings.ray.{wait.name}={format_duration(lasting)}: KubeRay's operator has it so."


def _changes(found: RayInstallation) -> Iterator[RayObjectChange]:
    for cluster in found.clusters:
        pods = tuple(pod for pod in found.pods if is_owned(pod, cluster))
        outcome, harmful = _of_cluster(found, cluster, pods)
        yield _change(cluster, len(pods), outcome, harmful=harmful)
    for job in found.jobs:
        outcome, harmful = _of_job(job)
        yield _change(job, _pods_of(found, job), outcome, harmful=harmful)
    for service in found.services:
        outcome, harmful = _of_service(found, service)
        yield _change(service, _pods_of(found, service), outcome, harmful=harmful)
    for cron in found.cron_jobs:
        yield _change(cron, 0, _of_cron_job(found, cron), harmful=False)


def _of_cluster(found: RayInstallation, cluster: RayCluster, pods: tuple[RayPod, ...]) -> tuple[str, bool]:
    if (left := _left_alone(cluster.spec.managed_by)) is not None:
        return left
    if problems := cluster_problems(cluster):
        return f"its pods go on, and it is not changed any more: {sentences(problems)}", False
    planned = plan_pods(
        PodSnapshot(
            cluster=cluster,
            pods=pods,
            template_hashes={},
            recreate_hash=recreate_hash(as_written(cluster)),
            version=OPERATOR_VERSION,
            now=found.now,
        ),
        random.Random(0),
    )
    return _of_plan(planned)


def _of_plan(planned: PodPlan) -> tuple[str, bool]:
    parts = []
    ended: Counter[str] = Counter(removal.why.value for removal in planned.removals)
    parts += [f"{counted(number, 'pod')} would be deleted: {why}" for why, number in sorted(ended.items())]
    if planned.orders:
        parts.append(f"{counted(len(planned.orders), 'pod')} that is missing would be made")
    if not parts and planned.refresh is not None:
        parts.append(f"{_STEADY}; its head is noted to be of this operator")
    return "; ".join(parts) or _STEADY, any(removal.why in _OF_PODS_THAT_RUN for removal in planned.removals)


def _of_job(job: RayJob) -> tuple[str, bool]:
    if (left := _left_alone(job.spec.managed_by)) is not None:
        return left
    if job.status.job_deployment_status in _ENDED:
        return "it has ended", False
    if problems := job_problems(job):
        return f"it would not go on: {sentences(problems)}", True
    return _STEADY, False


def _of_service(found: RayInstallation, service: RayService) -> tuple[str, bool]:
    if (left := _left_alone(service.spec.managed_by)) is not None:
        return left
    if problems := service_problems(service):
        return f"it goes on to answer, and is not changed any more: {sentences(problems)}", False
    clusters = tuple(_view(found, each) for each in found.clusters if is_owned(each, service))
    roles = decide_roles(Snapshot(service=service, clusters=clusters, options=RayOptions(), now=found.now))
    pending = service.status.pending_service_status
    if roles.create and clusters and (pending is None or roles.pending != pending.ray_cluster_name):
        return "its spec was changed and KubeRay has not carried it out: a second cluster would come up", False
    if roles.drop:
        return f"{counted(len(roles.drop), 'cluster')} of it that never answered would be deleted", True
    return f"{_STEADY}; its clusters are noted to be of this operator", False


def _of_cron_job(found: RayInstallation, cron: RayCronJob) -> str:
    """KubeRay looks after them behind a feature gate that is off by default, and keeps all RayJobs of them."""
    if problems := cronjob_problems(cron):
        return f"it makes no more RayJobs: {sentences(problems)}"
    made = tuple(job for job in found.jobs if is_owned(job, cron))
    decision = decide(CronSnapshot(cron=cron, jobs=made, now=found.now))
    parts = []
    if decision.due is not None:
        parts.append(f"a RayJob would be made at once, for {decision.due:%Y-%m-%d %H:%M} UTC, which was missed")
    if decision.delete:
        verb = "is" if len(decision.delete) == 1 else "are"
        parts.append(
            f"{counted(len(decision.delete), 'RayJob')} that {verb} over would be deleted, by its history limits"
        )
    return "; ".join(parts) or ("it stays suspended" if cron.spec.suspend else _STEADY)


def _view(found: RayInstallation, cluster: RayCluster) -> ClusterView:
    return ClusterView(cluster=cluster, pods=tuple(pod for pod in found.pods if is_owned(pod, cluster)))


def _left_alone(managed_by: str) -> tuple[str, bool] | None:
    return ("it is MultiKueue's, and is left alone", False) if managed_by == MANAGED_BY_MULTIKUEUE else None


def _pods_of(found: RayInstallation, owner: Object) -> int:
    uids = {each.metadata.uid for each in found.clusters if is_owned(each, owner)}
    owners = (controller_of(pod) for pod in found.pods)
    return sum(each is not None and each.uid in uids for each in owners)


def _objects(found: RayInstallation) -> Iterable[Object]:
    return (*found.clusters, *found.jobs, *found.services, *found.cron_jobs)


def _change(item: Object, pods: int, outcome: str, *, harmful: bool) -> RayObjectChange:
    return RayObjectChange(
        kind=item.resource.kind,
        namespace=item.metadata.namespace or "",
        name=item.name,
        pods=pods,
        outcome=outcome,
        harmful=harmful,
    )
