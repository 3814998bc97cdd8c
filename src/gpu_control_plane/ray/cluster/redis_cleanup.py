"""Carries out the deletion of RayClusters that keep state in Redis."""

from datetime import datetime
from typing import Final

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import Finalizer
from gpu_control_plane.kube.controller import Requeue
from gpu_control_plane.kube.errors import AlreadyExists, ApiError, NotFound, ServerError, TooManyRequests
from gpu_control_plane.kube.finalizers import remove_finalizer
from gpu_control_plane.ray.cluster.attempts import Attempts
from gpu_control_plane.ray.cluster.caches import ClusterCaches
from gpu_control_plane.ray.cluster.deletion import NextStep, plan_deletion
from gpu_control_plane.ray.cluster.events import ClusterEvent
from gpu_control_plane.ray.cluster.manifests import ClusterContext, redis_cleanup_job
from gpu_control_plane.ray.cluster.pod_writer import PodWriter
from gpu_control_plane.ray.components import RayComponents
from gpu_control_plane.ray.owned import OwnedJob

_JOB: Final = "Job"
"""What `Attempts` calls it."""
_SOONEST_SECONDS: Final = 0.1


class RedisCleanup:
    """Removes the finalizer of a cluster when its keys in Redis are gone, or its time is over."""

    def __init__(self, parts: RayComponents, caches: ClusterCaches, pods: PodWriter, attempts: Attempts) -> None:
        self._parts = parts
        self._client = parts.runtime.client
        self._events = parts.runtime.events
        self._caches = caches
        self._pods = pods
        self._attempts = attempts

    async def carry_on(self, cluster: RayCluster) -> Requeue | None:
        """The next step of a deletion."""
        now, settings = self._parts.now(), self._parts.settings
        pods, job = self._caches.pods_of(cluster), self._caches.cleanup_job(cluster)
        deletion = plan_deletion(cluster, pods, job, now=now, default_timeout=settings.redis_cleanup_timeout)
        step: NextStep = deletion.step
        again_at, why = deletion.again_at, deletion.why
        if step is NextStep.NOTHING:
            return None
        if not settings.options.redis_cleanup:
            step = NextStep.REMOVE_FINALIZER
        await self._pods.delete(deletion.removals)
        if step is NextStep.CREATE_JOB:
            step, due = await self._create_job(cluster, now)
            why = "the namespace is being deleted"
            again_at = min(moment for moment in (due, again_at) if moment is not None)
        if step is NextStep.FORCE:
            note = f"keys of the cluster may still be in Redis: {why}"
            self._events.warning(cluster, ClusterEvent.FORCED, note, action="Cleanup")
        if step in (NextStep.REMOVE_FINALIZER, NextStep.FORCE):
            await remove_finalizer(self._client, cluster, Finalizer.REDIS_CLEANUP)
            return None
        return Requeue(max((again_at - now).total_seconds(), _SOONEST_SECONDS)) if again_at is not None else None

    async def _create_job(self, cluster: RayCluster, now: datetime) -> tuple[NextStep, datetime | None]:
        """Make the Job; where that can never be, the finalizer is to be removed."""
        uid, generation = cluster.metadata.uid, cluster.metadata.generation
        attempt = self._attempts.of(uid, generation).get(_JOB)
        if attempt is not None and attempt.not_before > now:
            return NextStep.WAIT, attempt.not_before
        context = ClusterContext(cluster=cluster, options=self._parts.settings.options, gpus=self._parts.gpus.current)
        try:
            job = await self._client.create(OwnedJob, redis_cleanup_job(context), cluster.metadata.namespace)
        except AlreadyExists as error:
            message = error.message
        except ApiError as error:
            if isinstance(error, ServerError | TooManyRequests):
                raise
            if isinstance(error, NotFound) or "being terminated" in error.message:
                return NextStep.FORCE, None  # The namespace goes, too.
            message = error.message
        else:
            note = f"created Job {job.name}, which removes the keys of the cluster from Redis"
            self._events.normal(cluster, ClusterEvent.CREATED_CLEANUP, note, action="Create")
            return NextStep.WAIT, None
        self._events.warning(cluster, ClusterEvent.FAILED_CREATE_CLEANUP, message, action="Create")
        self._attempts.failed(uid, _JOB, "", message, generation=generation, now=now)
        return NextStep.WAIT, self._attempts.of(uid, generation)[_JOB].not_before
