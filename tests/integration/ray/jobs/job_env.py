"""RayJobs on a real API server: the operator is real, and Ray's dashboard a real server of its own. Clusters come up,
submitters submit and jobs end by what the test says; an operator can be killed at any write.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, ClassVar

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.cronjob import RayCronJob
from gpu_control_plane.api.ray.job import RayJob, RayJobStatus
from gpu_control_plane.kube import Client, Object, Resource, Runtime, Selection
from gpu_control_plane.kube.errors import KubeError, NotFound
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.ray.components import RayComponents
from gpu_control_plane.ray.cronjob import controller as cronjob_controller
from gpu_control_plane.ray.dashboard.calls import Pace
from gpu_control_plane.ray.dashboard.exchange import Exchange
from gpu_control_plane.ray.job import controller as job_controller
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.settings import Settings
from ray_dashboard import FakeDashboard
from waiting import until_async

CLUSTER: dict[str, Any] = {
    "rayVersion": "2.60.0",
    "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head", "image": "ray:2.60"}]}}},
    "workerGroupSpecs": [
        {
            "groupName": "gpu",
            "replicas": 1,
            "minReplicas": 0,
            "maxReplicas": 2,
            "template": {"spec": {"containers": [{"name": "ray-worker", "image": "ray:2.60"}]}},
        }
    ],
}
PACE = Pace(poll_seconds=0.05, slowest_poll_seconds=0.1, first_retry_seconds=0.05, slowest_retry_seconds=0.1)


class Job(Object, frozen=True):
    """A Job of Kubernetes as whoever runs its pods sees it."""

    resource: ClassVar[Resource] = Resource("batch", "v1", "Job", "jobs")
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    @property
    def job_id(self) -> str:
        env = self.spec["template"]["spec"]["containers"][0]["env"]
        return str(next(held["value"] for held in env if held["name"] == "RAY_JOB_SUBMISSION_ID"))

    @property
    def ended(self) -> bool:
        return any(held["type"] in {"Complete", "Failed"} for held in self.status.get("conditions", ()))


class Killed(KubeError):
    """The operator was killed here."""


class Kill:
    """Kills an operator at its n-th write, Kubernetes' or Ray's: before it is sent, or before its answer arrives."""

    def __init__(self, after: int, *, answered: bool) -> None:
        self._left = after
        self._answered = answered
        self.dead = asyncio.Event()

    async def at(self, write: Callable[[], Awaitable[Any]]) -> Any:
        if self.dead.is_set():
            raise Killed
        self._left -= 1
        if self._left >= 0:
            return await write()
        if self._answered:
            self.dead.set()
            with suppress(Exception):
                await write()
        self.dead.set()
        raise Killed


class RayJobEnv:
    """One namespace with its Ray, and what the test does to it."""

    def __init__(self, client: Client, namespace: str, fake: FakeDashboard) -> None:
        self.client = client
        self.namespace = namespace
        self.fake = fake
        self.job_ends: list[str] = ["SUCCEEDED"]
        """How jobs end, in the order of their submission; the last holds for all further ones."""
        self.ends = True
        """Whether jobs end by themselves."""
        self.clusters_come_up = True
        self.away = timedelta()
        """How far the operator's clock is ahead."""
        self.settings = Settings(options=RayOptions(watch_namespaces=(namespace,)))

    async def submit(self, name: str = "demo", **spec: Any) -> RayJob:
        wire = {"metadata": {"name": name}, "spec": {"entrypoint": "python job.py", "rayClusterSpec": CLUSTER, **spec}}
        return await self.client.create(RayJob, wire, self.namespace)

    async def edit(self, name: str = "demo", **spec: Any) -> None:
        await self.client.patch(RayJob, name, {"spec": spec}, namespace=self.namespace)

    async def status(self, name: str = "demo") -> RayJobStatus:
        return (await self.client.get(RayJob, name, self.namespace)).status

    async def reaches(self, state: str, name: str = "demo", within: float = 20) -> RayJobStatus:
        """Wait until the RayJob is in a state."""

        async def there() -> bool:
            await asyncio.sleep(0.1)  # the API server has others to serve
            return (await self.status(name)).job_deployment_status == state

        await until_async(there, within=within, saying=f"{name} is {state}")
        return await self.status(name)

    async def clusters(self) -> list[RayCluster]:
        return await self.client.list(RayCluster, Selection(namespace=self.namespace))

    async def submitters(self) -> list[Job]:
        return await self.client.list(Job, Selection(namespace=self.namespace))

    @asynccontextmanager
    async def operator(self, kill: Kill | None = None) -> AsyncIterator[Runtime]:
        """A process with the controllers of RayJobs and RayCronJobs."""
        runtime = Runtime(
            "ray-operator",
            config=self.client.config,
            namespace=self.namespace,
            elect=False,
            status_port=None,
            identity=secrets.token_hex(4),
        )
        exchange = Exchange(environ={}, allowed=lambda _address: True)
        components = RayComponents(
            runtime,
            self.settings,
            now=lambda: utc_now() + self.away,
            exchange=exchange,
            where=lambda _cluster, _service: self.fake.url,
            pace=PACE,
        )
        if kill is not None:
            _install_kill(runtime, components, kill)
        job_controller.build(components)
        cronjob_controller.build(components)
        task = asyncio.create_task(runtime.run())
        try:
            yield runtime
        finally:
            if kill is not None and kill.dead.is_set():
                task.cancel()
            runtime.stop()
            with suppress(asyncio.CancelledError):
                await task

    @asynccontextmanager
    async def simulation(self) -> AsyncIterator[None]:
        """Clusters come up, submitters submit, and jobs run, for as long as the block lasts."""

        async def simulate() -> None:
            while True:
                with suppress(NotFound, KubeError):
                    await self.step()
                await asyncio.sleep(0.1)

        task = asyncio.create_task(simulate())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def step(self) -> None:
        """What pods, kubelets and Ray do."""
        for cluster in await self.clusters():
            if self.clusters_come_up and cluster.status.state is None:
                await self.set_cluster(cluster.name, state="ready")
        for job in await self.submitters():
            if not job.ended:
                await self._follow(job)
        for job_id, held in list(self.fake.jobs.items()):
            if held["status"] == "PENDING":
                self.fake.set(job_id, "RUNNING")
            elif held["status"] == "RUNNING" and self.ends:
                number = [one.submission_id for one in self.fake.submissions].index(job_id)
                self.fake.set(job_id, self.job_ends[min(number, len(self.job_ends) - 1)], message="the end")

    async def set_cluster(self, name: str, **status: Any) -> None:
        await self.client.patch(RayCluster, name, {"status": status}, namespace=self.namespace, subresource="status")

    async def _follow(self, job: Job) -> None:
        """The pod of a submitter: it submits the job unless Ray has it, and ends with it."""
        held = self.fake.jobs.get(job.job_id)
        if held is None:
            self.fake.submit(job.job_id)
        elif held["status"] in {"SUCCEEDED", "FAILED", "STOPPED"}:
            await self.end_submitter(job.name, failed=held["status"] == "FAILED")

    async def end_submitter(self, name: str = "demo", *, failed: bool = False) -> None:
        begun = "2026-01-01T00:00:00Z"
        kinds = ("FailureTarget", "Failed") if failed else ("SuccessCriteriaMet", "Complete")
        status: dict[str, Any] = {
            "startTime": begun,
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": begun} for kind in kinds],
            **({"failed": 3} if failed else {"succeeded": 1, "completionTime": begun}),
        }
        await self.client.patch(Job, name, {"status": status}, namespace=self.namespace, subresource="status")

    async def cron(self, name: str = "nightly", **spec: Any) -> RayCronJob:
        template = {"entrypoint": "python job.py", "rayClusterSpec": CLUSTER, "submissionMode": "HTTPMode"}
        wire = {"metadata": {"name": name}, "spec": {"jobTemplate": template, **spec}}
        return await self.client.create(RayCronJob, wire, self.namespace)


def _install_kill(runtime: Runtime, components: RayComponents, kill: Kill) -> None:
    """Put the kill between the operator and everything that it writes."""
    write: Any = runtime.client._write
    dashboard: Any = components.dashboard
    submit, stop = dashboard.submit, dashboard.stop

    async def at_write(*given: Any, **named: Any) -> Any:
        return await kill.at(lambda: write(*given, **named))

    async def at_submit(*given: Any) -> Any:
        return await kill.at(lambda: submit(*given))

    async def at_stop(*given: Any) -> Any:
        return await kill.at(lambda: stop(*given))

    runtime.client._write = at_write  # type: ignore[method-assign]
    dashboard.submit, dashboard.stop = at_submit, at_stop


def names(items: list[Any]) -> list[str]:
    return sorted(item.metadata.name for item in items)
