"""RayJobs as a controller: it takes the snapshot, and carries out what was decided, in its order."""

import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.job import JobDeploymentStatus, RayJob
from gpu_control_plane.api.ray.names import MANAGED_BY_MULTIKUEUE, Finalizer, Label
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.errors import KubeError, NotFound
from gpu_control_plane.kube.finalizers import add_finalizer, remove_finalizer
from gpu_control_plane.kube.objects import Key, Object, controller_of
from gpu_control_plane.ray.cluster.caches import BY_OWNER, by_owner
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext
from gpu_control_plane.ray.components import RayComponents
from gpu_control_plane.ray.dashboard.access import dashboard_url, own_head_service
from gpu_control_plane.ray.dashboard.errors import NotSent
from gpu_control_plane.ray.dashboard.exchange import DashboardEndpoint
from gpu_control_plane.ray.event_record import emit
from gpu_control_plane.ray.job.decide import decide
from gpu_control_plane.ray.job.events import JobEvent
from gpu_control_plane.ray.job.manifests import job_head_service, ray_cluster, submitter_job, suspended_workers
from gpu_control_plane.ray.job.observe import living_head, submitter_of
from gpu_control_plane.ray.job.snapshot import Call, Decision, Snapshot, Step, Timings
from gpu_control_plane.ray.job.submission import call_name, submission
from gpu_control_plane.ray.names import head_service_name
from gpu_control_plane.ray.owned import MADE_HERE, OF_CLUSTERS, OwnedJob, OwnedService, RayPod, is_owned
from gpu_control_plane.ray.scheduling import scheduler_for
from gpu_control_plane.ray.scheduling.submitter import SUBMITTER_GROUP
from gpu_control_plane.ray.status_patch import write_status
from gpu_control_plane.rules.ray.job import job_problems

_BY_CLUSTER: Final = "ray/cluster-of-job"
_CHECKED: Final = frozenset(
    {
        JobDeploymentStatus.NEW,
        JobDeploymentStatus.INITIALIZING,
        JobDeploymentStatus.SUSPENDED,
        JobDeploymentStatus.VALIDATION_FAILED,
    }
)
"""States in which the spec is still to be carried out."""
_ALPHANUMERIC: Final = "abcdefghijklmnopqrstuvwxyz0123456789"

Problems = Callable[[RayJob], Iterable[str]]
"""Why a RayJob cannot be carried out, in sentences."""


def build(components: RayComponents, *, problems: Problems | None = None, rng: random.Random | None = None) -> None:
    """Add the controller of RayJobs to a process."""
    jobs = _Jobs(components, problems or spec_problems, rng or random.Random())
    controller = components.runtime.controller("rayjob", jobs.reconcile)
    jobs.jobs.watch(controller)
    jobs.clusters.watch(controller, jobs.using)
    jobs.submitters.watch(controller, _owning_job)
    jobs.services.watch(controller, _owning_job)
    jobs.pods.watch(controller, jobs.with_head, _head_changed)
    controller.watch(jobs.calls.signal)
    controller.watch(components.lease.changed, lambda _fired: [job.key for job in jobs.jobs])


def spec_problems(job: RayJob) -> Iterable[str]:
    """What admission checks, and what the job could not be submitted with."""
    yield from (str(problem) for problem in job_problems(job))
    try:
        submission(job)
    except NotSent as error:
        yield str(error)


class _Jobs:
    """The caches, and one reconcile."""

    def __init__(self, components: RayComponents, problems: Problems, rng: random.Random) -> None:
        self._components = components
        self._problems = problems
        self._rng = rng
        self._client = components.runtime.client
        self._events = components.runtime.events
        self._options = components.settings.options
        settings = components.settings
        self._timings = Timings(
            status_check=settings.job_status_check_timeout,
            end_grace=settings.job_end_grace,
            submitter_grace=settings.submitter_grace,
        )
        self._scheduler = scheduler_for(self._options.batch_scheduler)
        self.jobs = components.caches(RayJob)
        self.jobs.index(_BY_CLUSTER, lambda job: [f"{job.metadata.namespace}/{job.status.ray_cluster_name}"])
        self.clusters = components.caches(RayCluster)
        self.clusters.index(BY_OWNER, by_owner)
        self.submitters = components.caches(OwnedJob, MADE_HERE)
        self.services = components.caches(OwnedService, MADE_HERE)
        self.heads = components.caches(OwnedService, OF_CLUSTERS)
        self.pods = components.caches(RayPod, OF_CLUSTERS)
        self.pods.index(BY_OWNER, by_owner)
        self._groups = {
            kind: components.caches(kind) for kind in (self._scheduler.kinds if self._scheduler is not None else ())
        }
        self.calls = components.calls.for_controller("rayjob-calls")
        components.runtime.on_lead(self.calls.forget_all)
        self._acts: dict[Step, Callable[[RayJob], Awaitable[None]]] = {
            Step.MAKE_CLUSTER: self._make_cluster,
            Step.MAKE_SUBMITTER: self._make_submitter,
            Step.MAKE_SERVICE: self._make_service,
            Step.MAKE_GROUP: self._make_group,
            Step.SUSPEND_WORKERS: self._suspend_workers,
            Step.DELETE_CLUSTERS: self._delete_clusters,
            Step.DELETE_SUBMITTER: self._delete_submitter,
            Step.DELETE_SELF: self._delete,
            Step.REMOVE_FINALIZER: self._remove_finalizer,
        }

    async def reconcile(self, key: Key) -> Requeue | None:
        job = self.jobs.at(key)
        if job is None or job.spec.managed_by == MANAGED_BY_MULTIKUEUE or self._components.lease.active() is not None:
            self.calls.forget(key)
            return None
        seen = self._look(job)
        decision = decide(seen)
        job, trouble = await self._carry_out(job, decision)
        self._ask(job, seen, decision.calls)
        for event in decision.events:
            emit(self._events, job, event)
        if trouble is not None:
            raise trouble
        return Requeue(after=decision.again_in.total_seconds()) if decision.again_in is not None else None

    def _look(self, job: RayJob) -> Snapshot:
        cluster = self._cluster(job)
        head = living_head(self._pods_of(cluster)) if cluster is not None else None
        held = self._submitter(job)
        submitter = submitter_of(job, held, head)
        submitted = self._latest(job, call_name(job, Call.SUBMIT, submitter, submitted=False))
        done = submitted is not None and submitted.error is None
        return Snapshot(
            job=job,
            now=self._components.now(),
            suffix="".join(self._rng.choices(_ALPHANUMERIC, k=5)),
            cluster=cluster,
            own_clusters=tuple(self._own_clusters(job)),
            submitter=submitter,
            job_object=held is not None,
            head=head is not None,
            dashboard_url=self._address(cluster) if cluster is not None else "",
            ray=self._latest(job, call_name(job, Call.FOLLOW, submitter, submitted=done)),
            submitted=submitted,
            stopped=self._latest(job, call_name(job, Call.STOP, submitter, submitted=done)),
            problems=tuple(self._all_problems(job)) if job.status.job_deployment_status in _CHECKED else (),
            deletes_self=self._options.delete_job_after_finish,
            timings=self._timings,
        )

    def _latest(self, job: RayJob, name: str) -> Any:
        return self.calls.latest(job.key, name)

    def _all_problems(self, job: RayJob) -> Iterable[str]:
        yield from self._problems(job)
        refusal = self._scheduler.refusal(job) if self._scheduler is not None else None
        if refusal is not None:
            yield refusal.message

    async def _carry_out(self, job: RayJob, decision: Decision) -> tuple[RayJob, KubeError | None]:
        """The job as it is then, and why something beside it could not be made: that keeps nobody from following it."""
        trouble: KubeError | None = None
        for step in decision.steps:
            match step:
                case Step.ADD_FINALIZER:
                    job = await add_finalizer(self._client, job, Finalizer.JOB.value)
                case Step.WRITE_STATUS:
                    job = await write_status(self._client, job, decision.status)
                case Step.MAKE_SERVICE | Step.MAKE_GROUP:
                    try:
                        await self._acts[step](replace(job, status=decision.status))
                    except KubeError as error:
                        trouble = error
                case _:
                    await self._acts[step](replace(job, status=decision.status))
        return job, trouble

    async def _remove_finalizer(self, job: RayJob) -> None:
        await remove_finalizer(self._client, job, Finalizer.JOB.value)

    async def _make_cluster(self, job: RayJob) -> None:
        annotations = self._scheduler.cluster_annotations(job) if self._scheduler is not None else {}
        await self._make(job, RayCluster, ray_cluster(job, annotations), JobEvent.CREATED_CLUSTER)

    async def _make[T: Object](self, job: RayJob, kind: type[T], manifest: dict[str, Any], event: JobEvent) -> None:
        name = manifest["metadata"]["name"]
        try:
            _, made = await self._components.writer.create_once(kind, job, manifest)
        except KubeError as error:
            failed = _FAILED[event]
            self._events.warning(job, failed, f"{kind.resource.kind} {name}: {error}", action="Create")
            raise
        if made:
            self._events.normal(job, event, f"{kind.resource.kind} {name} was made", action="Create")

    async def _make_submitter(self, job: RayJob) -> None:
        cluster = self._cluster(job)
        if cluster is None or self._submitter(job) is not None:
            return
        scheduling_fields = (
            self._scheduler.pod_scheduling_fields(job, cluster, SUBMITTER_GROUP)
            if self._scheduler is not None
            else None
        )
        await self._make(job, OwnedJob, submitter_job(job, cluster, scheduling_fields), JobEvent.CREATED_SUBMITTER)

    async def _make_service(self, job: RayJob) -> None:
        cluster = self._cluster(job)
        if cluster is None:
            return
        held = self.services.get(head_service_name(job.name), job.metadata.namespace)
        manifest = job_head_service(job, ClusterContext(cluster=cluster, options=self._options))
        try:
            _, written = await self._components.writer.ensure(OwnedService, job, manifest, held)
        except KubeError as error:
            self._events.warning(job, JobEvent.FAILED_CREATE_SERVICE, str(error), action="Create")
            raise
        if written and held is None:
            name = manifest["metadata"]["name"]
            self._events.normal(job, JobEvent.CREATED_SERVICE, f"Service {name} was made", action="Create")

    async def _make_group(self, job: RayJob) -> None:
        if self._scheduler is None:
            return
        kinds = {kind.resource.kind: kind for kind in self._scheduler.kinds}
        cluster = self._cluster(job)
        for manifest in self._scheduler.objects(job, cluster):
            kind = kinds[manifest["kind"]]
            held = self._groups[kind].get(manifest["metadata"]["name"], job.metadata.namespace)
            await self._components.writer.ensure(kind, job, manifest, held)

    async def _delete_clusters(self, job: RayJob) -> None:
        for cluster in self._own_clusters(job):
            if not cluster.deleting:
                await self._delete(cluster)

    async def _delete_submitter(self, job: RayJob) -> None:
        held = self._submitter(job)
        if held is not None and not held.deleting:
            # On a cluster that stays, its pod must be gone before the job is told to stop: it would submit it again.
            stays = job.spec.cluster_selector or job.status.job_deployment_status is JobDeploymentStatus.FAILED
            await self._delete(held, propagation="Foreground" if stays else "Background")

    async def _delete(self, item: Object, propagation: str = "Background") -> None:
        metadata = item.metadata
        try:
            await self._client.delete(
                type(item), item.name, metadata.namespace, uid=metadata.uid, propagation=propagation
            )
        except NotFound:
            return

    async def _suspend_workers(self, job: RayJob) -> None:
        for cluster in self._own_clusters(job):
            groups = suspended_workers(cluster)
            if not cluster.deleting and groups:
                await self._client.patch(
                    RayCluster,
                    cluster.name,
                    {"spec": {"workerGroupSpecs": groups}},
                    resource_version=cluster.metadata.resource_version,
                    namespace=cluster.metadata.namespace,
                )

    def _ask(self, job: RayJob, seen: Snapshot, calls: frozenset[Call]) -> None:
        done = seen.submitted is not None and seen.submitted.error is None
        names = {call: call_name(job, call, seen.submitter, submitted=done) for call in calls}
        self.calls.retain(job.key, names.values())
        for call, name in names.items():
            every = self.calls.poll_seconds if call is Call.FOLLOW else None
            self.calls.ask(job.key, name, self._call(job, call), every=every)

    def _call(self, job: RayJob, call: Call) -> Callable[[], Awaitable[object]]:
        dashboard, job_id = self._components.dashboard, job.status.job_id

        async def follow() -> object:
            return await dashboard.job(await self._endpoint(job), job_id)

        async def submit() -> object:
            return await dashboard.submit(await self._endpoint(job), submission(job))

        async def stop() -> object:
            return await dashboard.stop(await self._endpoint(job), job_id)

        return {Call.FOLLOW: follow, Call.SUBMIT: submit, Call.STOP: stop}[call]

    async def _endpoint(self, job: RayJob) -> DashboardEndpoint:
        cluster = self._cluster(job)
        if cluster is None:
            raise NotSent(f"there is no RayCluster {job.status.ray_cluster_name}")
        return await self._components.endpoints.of(cluster, self._service(cluster))

    def _address(self, cluster: RayCluster) -> str:
        options = replace(self._options, use_kubernetes_proxy=False)
        try:
            return dashboard_url(cluster, self._service(cluster), options).removeprefix("http://")
        except NotSent:
            return ""

    def _service(self, cluster: RayCluster) -> OwnedService | None:
        return own_head_service(cluster, self.heads.get)

    def _cluster(self, job: RayJob) -> RayCluster | None:
        """The cluster that the status names: made by this RayJob, or the one that its spec selects."""
        held = self.clusters.get(job.status.ray_cluster_name, job.metadata.namespace)
        if held is None:
            return None
        selected = job.spec.cluster_selector.get(Label.CLUSTER.value) == held.name
        return held if selected or is_owned(held, job) else None

    def _own_clusters(self, job: RayJob) -> Iterable[RayCluster]:
        return [held for held in self.clusters.by_index(BY_OWNER, job.metadata.uid) if is_owned(held, job)]

    def _pods_of(self, cluster: RayCluster) -> list[RayPod]:
        return [pod for pod in self.pods.by_index(BY_OWNER, cluster.metadata.uid) if is_owned(pod, cluster)]

    def _submitter(self, job: RayJob) -> OwnedJob | None:
        held = self.submitters.get(job.name, job.metadata.namespace)
        return held if held is not None and is_owned(held, job) else None

    def using(self, cluster: RayCluster) -> Iterable[Key]:
        """The RayJobs that made a cluster, or run on it."""
        name = f"{cluster.metadata.namespace}/{cluster.name}"
        return {*_owning_job(cluster), *(job.key for job in self.jobs.by_index(_BY_CLUSTER, name))}

    def with_head(self, pod: RayPod) -> Iterable[Key]:
        """The RayJobs that run on the cluster of a head."""
        if not pod.is_head:
            return ()
        name = f"{pod.metadata.namespace}/{pod.cluster}"
        return [job.key for job in self.jobs.by_index(_BY_CLUSTER, name)]


_FAILED: Final = {
    JobEvent.CREATED_CLUSTER: JobEvent.FAILED_CREATE_CLUSTER,
    JobEvent.CREATED_SUBMITTER: JobEvent.FAILED_CREATE_SUBMITTER,
}


def _owning_job(item: Object) -> Iterable[Key]:
    owner = controller_of(item)
    of_job = owner is not None and (owner.api_version, owner.kind) == (
        RayJob.resource.api_version,
        RayJob.resource.kind,
    )
    return (Key(owner.name, item.metadata.namespace),) if owner is not None and of_job else ()


def _head_changed(old: RayPod | None, new: RayPod | None) -> bool:
    """Whether what is read of a head has changed: that it is there, and how its containers stand."""
    if old is None or new is None:
        return True
    return (old.status.phase, old.status.container_statuses) != (new.status.phase, new.status.container_statuses)
