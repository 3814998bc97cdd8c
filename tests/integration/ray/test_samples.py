"""Every sample manifest on a real API server, with pod life simulated: the objects, states and conditions it leads to.

The tables in `expected` are written by the rules of KubeRay. Environments are shared by the module, one for each way
in which the operator is configured: samples are many, and each of them is small.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio
import yaml
from msgspec.structs import replace

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.cronjob import RayCronJob
from gpu_control_plane.api.ray.job import RayJob, RayJobStatus
from gpu_control_plane.api.ray.names import HEAD_GROUP
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, Object, load_config
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.local import Cluster
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.owned import OwnedJob, OwnedService
from gpu_control_plane.ray.service.gateway import Gateway, HTTPRoute
from integration.bootstrap.operands import allow_pods
from integration.conftest import Namespace
from integration.ray.expected.checks import (
    FOREIGN,
    HEADLESS,
    Json,
    by_name,
    check,
    check_cluster,
    conditions_of,
    is_made_by,
    listed,
)
from integration.ray.expected.clusters import CLUSTERS
from integration.ray.expected.jobs import JOBS, SUBMITTER, WITHOUT_WORKERS, ExpectedJob
from integration.ray.expected.sample import Sample
from integration.ray.expected.services import SERVICES, ExpectedService
from integration.ray.foreign_kinds import serve
from integration.ray.jobs.play import Play
from integration.ray.ray_env import RayEnv, ray_env
from integration.ray.service_env import ServiceEnv, service_env
from integration.rbac import ServiceAccount
from ray_dashboard import FakeDashboard
from ray_samples import NAMES, changed, sample
from waiting import until_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

POOL = "pool-a"
"""The pool that samples name."""
WITHIN = 40
BY_THEMSELVES = ("job-multikueue", "job-on-existing-cluster", "cronjob-nightly")
"""Samples that are not in a table of their kind, but have a test of their own."""
UNWATCHED = ("certificates", "issuers", "persistentvolumeclaims")
"""Kinds of which an operator that starts anew has to ask the API server whether they are as they should be."""


async def test_every_sample_is_expected_to_become_something() -> None:
    rows = {row.name or name for name, row in CLUSTERS.items()}
    assert sorted({*rows, *JOBS, *SERVICES, *BY_THEMSELVES}) == NAMES


# Environments.


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(api_server: Cluster) -> AsyncIterator[Client]:
    """An administrator's, on a server with all kinds that samples lead to, and a pool with room for them."""
    async with Client(load_config(api_server.kubeconfig)) as made:
        await install(made)
        await serve(made, *FOREIGN, Gateway, HTTPRoute)
        await made.create(GPUPool, {"metadata": {"name": POOL}, "spec": {}})
        units = {"total": 8, "used": 0, "reserved": 0, "available": 8, "faulted": 0}
        status = {"phase": "Ready", "units": units, "capacity": [{"name": f"gpu.deckhouse.io/{POOL}", **units}]}
        await made.patch(GPUPool, POOL, {"status": status}, subresource="status")
        try:
            yield made
        finally:
            await made.delete(GPUPool, POOL)


async def new_namespace(client: Client) -> str:
    made = await client.create(Namespace, {"metadata": {"generateName": "test-samples-"}})
    await allow_pods(client, made.name)
    return made.name


class Operators:
    """Operators that look after RayClusters, one for each configuration, and each with all samples that are for it."""

    def __init__(self, client: Client, stack: AsyncExitStack) -> None:
        self._client = client
        self._stack = stack
        self.running: dict[str, RayEnv] = {}

    async def of(self, options: RayOptions) -> RayEnv:
        key = repr(options)
        if key not in self.running:
            env = await self._stack.enter_async_context(ray_env(self._client, await new_namespace(self._client)))
            env.options = replace(options, watch_namespaces=(env.namespace,))
            env.settings = replace(env.settings, options=env.options)
            self.running[key] = env
            await self._client.create(ServiceAccount, {"metadata": {"name": "full-runner"}}, env.namespace)
            await env.start_operator()
            rows = [(name, row) for name, row in CLUSTERS.items() if row.options == options]
            for name, row in rows:
                await self._client.create(RayCluster, row.manifest(name), env.namespace)
        return self.running[key]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operators(client: Client) -> AsyncIterator[Operators]:
    async with AsyncExitStack() as stack:
        yield Operators(client, stack)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def job_clusters(client: Client) -> AsyncIterator[RayEnv]:
    """The clusters of RayJobs."""
    async with ray_env(client, await new_namespace(client)) as env:
        await env.start_operator()
        yield env


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def play(client: Client, job_clusters: RayEnv) -> AsyncIterator[Play]:
    """RayJobs, whose clusters come up as RayClusters do. A test leaves none that runs."""
    async with FakeDashboard() as dashboard:
        made = Play(client, job_clusters.namespace, dashboard)
        made.clusters_come_up = False
        async with made.operator(), made.life():
            yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def services(client: Client) -> AsyncIterator[ServiceEnv]:
    """All samples of RayServices at once."""
    async with service_env(client, await new_namespace(client), dashboards=len(SERVICES)) as env:
        await env.start_operator()
        for name in SERVICES:
            await client.create(RayService, sample(name), env.namespace)
        yield env


async def raw(client: Client, kind: type[Object], name: str, namespace: str) -> Json:
    """An object with every field."""
    found = [item for item in await listed(client, kind.resource, namespace) if item["metadata"]["name"] == name]
    assert found, f"there is no {kind.resource.kind} {name}"
    return found[0]


async def passes(comparison: Callable[[], Awaitable[None]], within: float = WITHIN) -> None:
    """Return when what is there is as it should be; fail with what is not."""
    last: list[Exception] = []

    async def compared() -> bool:
        try:
            await comparison()
        except (AssertionError, KeyError) as difference:  # a field that is not there yet is a KeyError
            last[:] = [difference]
            await asyncio.sleep(0.2)  # the API server has others to serve
            return False
        return True

    try:
        await until_async(compared, within=within)
    except AssertionError:
        raise last[0] from None


# RayClusters.


@pytest.mark.parametrize(("name", "row"), CLUSTERS.items(), ids=CLUSTERS)
async def test_a_cluster(client: Client, operators: Operators, name: str, row: Sample) -> None:
    env = await operators.of(row.options)
    called = row.manifest(name)["metadata"]["name"]

    async def compare() -> None:
        await check_cluster(client, await raw(client, RayCluster, called, env.namespace), row.expected)

    await passes(compare)


async def test_an_operator_that_starts_anew_finds_all_clusters_as_they_should_be(operators: Operators) -> None:
    """What the API server has filled in is not taken for a difference."""
    envs = {(await operators.of(row.options)).namespace: await operators.of(row.options) for row in CLUSTERS.values()}
    await asyncio.gather(*(env.quiet() for env in envs.values()))
    for env in envs.values():
        await env.stop_operator()
        env.proxy.requests.clear()
        await env.start_operator()
    await asyncio.gather(*(env.quiet() for env in envs.values()))
    for env in envs.values():
        kinds = [write.split()[1].partition("/")[0] for write in env.writes]
        assert [kind for kind in kinds if kind not in UNWATCHED] == []


# RayJobs.


@pytest.mark.parametrize(("name", "expected"), JOBS.items(), ids=JOBS)
async def test_a_job(client: Client, play: Play, job_clusters: RayEnv, name: str, expected: ExpectedJob) -> None:
    play.ends = False
    job = (await client.create(RayJob, sample(name), play.namespace)).name
    if expected.first:
        await play.reaches(expected.first, job, WITHIN)
        await goes_on(play, job, expected)
    status = await play.reaches("Running", job, WITHIN)
    if expected.mode == "SidecarMode":
        play.fake.submit(status.job_id)
    await until_async(lambda: has_status(play, job, "RUNNING"), within=WITHIN, saying=f"{job} runs")
    status = await play.status(job)
    assert re.match(expected.job_id or rf"^{job}-[a-z0-9]{{5}}$", status.job_id)
    cluster = await check_cluster_of(play, job, status, expected)
    await check_submission(play, job, status, expected)
    service = await raw(client, OwnedService, f"{job}-head-svc", play.namespace)
    check(service["spec"], {"selector": {"ray.io/cluster": cluster}, "clusterIP": "None"}, "Service of the head")
    play.ends = True
    if expected.mode == "SidecarMode":
        await end_sidecar(job_clusters, cluster)
    check_success(await play.reaches("Complete", job, WITHIN))
    if expected.goes_after is not None:
        await pass_time(play, job, expected.goes_after + 1)
        await until_async(lambda: is_gone(play, RayCluster, cluster), within=WITHIN, saying="the cluster goes")
    has_submitter = expected.mode == "K8sJobMode"
    assert await is_gone(play, OwnedJob, job) is not has_submitter
    if name == "job-deletion-rules":
        await check_deletion_rules(play, job, cluster)
    elif expected.goes_after is None:
        await client.get(RayCluster, cluster, play.namespace)


async def goes_on(play: Play, job: str, expected: ExpectedJob) -> None:
    """A person, or Kueue."""
    status = await play.status(job)
    if expected.first == "Suspended":
        assert (status.job_id, status.ray_cluster_name) == ("", "")
    else:
        assert status.job_id == ""
        play.fake.submit(str(expected.then["jobId"]))
    await play.edit(job, **expected.then)


async def end_sidecar(env: RayEnv, cluster: str) -> None:
    """The container beside the head has followed the job to its end."""
    (head,) = await env.pods(cluster, HEAD_GROUP)
    ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    held = {"ready": False, "restartCount": 0, "image": "x", "imageID": "x"}
    statuses = [
        {"name": "ray", **held, "ready": True, "state": {"running": {}}},
        {"name": "ray-job-submitter", **held, "state": ended},
    ]
    await env.life.set_status(head.name, containerStatuses=statuses)


async def check_cluster_of(play: Play, job: str, status: RayJobStatus, expected: ExpectedJob) -> str:
    """The RayCluster that the RayJob made; its name."""
    name = status.ray_cluster_name
    assert re.match(rf"^{job}-[a-z0-9]{{5}}$", name)
    host = f"{name}-head-svc.{play.namespace}.svc.cluster.local:8265"
    assert (status.dashboard_url, status.start_time is not None) == (host, True)
    assert status.ray_cluster_status is not None
    assert status.ray_cluster_status.state == "ready"
    held = await raw(play.client, RayCluster, name, play.namespace)
    owner = await raw(play.client, RayJob, job, play.namespace)
    assert is_made_by(held, owner)
    assert owner["metadata"]["finalizers"] == ["ray.io/rayjob-finalizer"]
    labels = {
        **owner["metadata"].get("labels", {}),
        "ray.io/originated-from-cr-name": job,
        "ray.io/originated-from-crd": "RayJob",
        "ray.io/job-submission-mode": expected.mode,
    }
    check(held["metadata"]["labels"], labels, "labels of the RayCluster")
    if expected.mode == "SidecarMode":
        lost = {"ray.io/disable-provisioned-head-restart": "true"}
        check(held["metadata"]["annotations"], lost, "annotations of the RayCluster")
    await check_cluster(play.client, held, expected.cluster)
    return name


async def check_submission(play: Play, job: str, status: RayJobStatus, expected: ExpectedJob) -> None:
    """Who submits, and what."""
    submissions = [one for one in play.fake.submissions if one.submission_id == status.job_id]
    assert len(submissions) == 1
    known = {"RAY_DASHBOARD_ADDRESS": status.dashboard_url, "RAY_JOB_SUBMISSION_ID": status.job_id}
    container: Json = {"env": {"PYTHONUNBUFFERED": "1", **known}}
    match expected.mode:
        case "HTTPMode":
            check(submissions[0].body, expected.posted, "what is posted")
        case "SidecarMode":
            container["env"]["RAY_DASHBOARD_ADDRESS"] = "127.0.0.1:8265"
            container["args"] = [submits(expected, "")]
            held = await raw(play.client, RayCluster, status.ray_cluster_name, play.namespace)
            spec = held["spec"]["headGroupSpec"]["template"]["spec"]
            check(spec, {"containers": {"ray-job-submitter": container}}, "the head's template")
        case "K8sJobMode":
            await check_submitter(play, job, container, expected)
        case _:
            assert expected.mode == "InteractiveMode"


async def check_submitter(play: Play, job: str, container: Json, expected: ExpectedJob) -> None:
    held = await raw(play.client, OwnedJob, job, play.namespace)
    assert is_made_by(held, await raw(play.client, RayJob, job, play.namespace))
    origin = {"ray.io/originated-from-cr-name": job, "ray.io/originated-from-crd": "RayJob"}
    check(held["metadata"]["labels"], {**origin, "app.kubernetes.io/created-by": "kuberay-operator"}, "labels")
    check(held["spec"]["template"]["metadata"]["labels"], origin, "labels of the submitter's pod")
    own = expected.submitter.get("spec", {}).get("template")
    name = "submit" if own else "ray-job-submitter"
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": {name: container}}}}}
    check(held, template, "the submitter")
    check(held, expected.submitter, "the submitter")
    if own:
        return
    scripted = {"command": ["/bin/bash", "-ce", "--"], "args": [submits(expected, "--no-wait ")]}
    check(held["spec"]["template"]["spec"], {"containers": {name: scripted}}, "the submitter")
    if not expected.submitter:
        check(held, SUBMITTER, "the submitter")


def submits(expected: ExpectedJob, wait: str) -> re.Pattern[str]:
    """A script that waits for Ray, and submits the job."""
    address = "--address http://$RAY_DASHBOARD_ADDRESS"
    identified = '--submission-id "$RAY_JOB_SUBMISSION_ID"'
    before, after = (expected.options, "") if expected.options.startswith("--runtime") else ("", expected.options)
    told = f"ray job submit {address} {wait}{before}{identified} {after}-- {expected.entrypoint}\n"
    follows = f'ray job logs {address} --follow "$RAY_JOB_SUBMISSION_ID"' if wait else ""
    return re.compile(f"/api/gcs_healthz.*{re.escape(told)}.*{re.escape(follows)}", re.DOTALL)


def check_success(status: RayJobStatus) -> None:
    assert (status.job_status, status.reason) == ("SUCCEEDED", "")
    assert (status.succeeded, status.failed) == (1, 0)
    assert status.end_time is not None
    assert status.ray_job_info is not None
    assert status.ray_job_info.end_time is not None


async def check_deletion_rules(play: Play, job: str, cluster: str) -> None:
    """30 seconds after its end workers go, after 60 the cluster, after 90 the RayJob."""

    async def without_workers() -> None:
        held = await raw(play.client, RayCluster, cluster, play.namespace)
        expected = {**WITHOUT_WORKERS.conditions, "WorkersReady": ("True", "AllWorkersReady")}
        await check_cluster(play.client, held, replace(WITHOUT_WORKERS, conditions=expected))

    await pass_time(play, job, 31)
    await passes(without_workers)
    await pass_time(play, job, 30)
    await until_async(lambda: is_gone(play, RayCluster, cluster), within=WITHIN, saying="the cluster goes")
    await play.client.get(RayJob, job, play.namespace)
    await pass_time(play, job, 30)
    await until_async(lambda: is_gone(play, RayJob, job), within=WITHIN, saying="the RayJob goes")


async def pass_time(play: Play, job: str, seconds: float, kind: type[Object] = RayJob) -> None:
    """The operator's clock goes on, and it looks at the object again."""
    play.away += timedelta(seconds=seconds)
    seen = {"metadata": {"annotations": {"example.com/later": str(play.away.total_seconds())}}}
    await play.client.patch(kind, job, seen, namespace=play.namespace)


async def is_gone(play: Play, kind: type[Object], name: str) -> bool:
    try:
        await play.client.get(kind, name, play.namespace)
    except NotFound:
        return True
    return False


async def has_status(play: Play, job: str, status: str) -> bool:
    return (await play.status(job)).job_status == status


async def test_a_job_on_a_cluster_that_is_there(client: Client, play: Play) -> None:
    """The one that the sample names: it is used, and left as it is."""
    play.ends = True
    await client.create(RayCluster, sample("cluster-minimal"), play.namespace)
    job = (await client.create(RayJob, sample("job-on-existing-cluster"), play.namespace)).name
    status = await play.reaches("Complete", job, WITHIN)
    check_success(status)
    assert (status.ray_cluster_name, status.dashboard_url) == (
        "minimal",
        f"minimal-head-svc.{play.namespace}.svc.cluster.local:8265",
    )
    held = await raw(client, RayCluster, "minimal", play.namespace)
    assert not held["metadata"].get("ownerReferences")
    await check_cluster(client, held, CLUSTERS["cluster-minimal"].expected)
    assert await is_gone(play, OwnedService, f"{job}-head-svc")
    assert not await is_gone(play, OwnedJob, job)


async def test_a_job_of_another_cluster_is_left_alone(client: Client, play: Play) -> None:
    play.ends = True
    theirs = (await client.create(RayJob, sample("job-multikueue"), play.namespace)).metadata
    ours = changed("job-http", {"metadata.name": "ours", "spec.jobId": "ours"})
    await client.create(RayJob, ours, play.namespace)
    await play.reaches("Complete", "ours", WITHIN)
    assert (await client.get(RayJob, theirs.name, play.namespace)).metadata.resource_version == theirs.resource_version


async def test_a_job_by_the_clock(client: Client, play: Play) -> None:
    """At half past two in Berlin there is a RayJob, which is carried out, and its cluster goes."""
    play.ends = False
    await client.create(RayCronJob, sample("cronjob-nightly"), play.namespace)

    async def planned() -> bool:
        return (await client.get(RayCronJob, "nightly", play.namespace)).status.next_schedule_time is not None

    await until_async(planned, within=WITHIN)
    due = (await client.get(RayCronJob, "nightly", play.namespace)).status.next_schedule_time
    assert due is not None
    assert f"{due.astimezone(ZoneInfo('Europe/Berlin')):%H:%M}" == "02:30"
    ahead = (due - utc_now() - play.away).total_seconds() + 1
    await pass_time(play, "nightly", ahead, RayCronJob)
    name = f"nightly-{int(due.timestamp()) // 60}"
    await until_async(lambda: is_there(play, name), within=WITHIN, saying=f"there is {name}")
    assert is_made_by(
        await raw(client, RayJob, name, play.namespace), await raw(client, RayCronJob, "nightly", play.namespace)
    )
    status = await play.reaches("Running", name, WITHIN)
    held = await raw(client, RayCluster, status.ray_cluster_name, play.namespace)
    await check_cluster(client, held, JOBS["job-simple"].cluster)
    play.ends = True
    check_success(await play.reaches("Complete", name, WITHIN))

    async def idle() -> bool:
        held = (await client.get(RayCronJob, "nightly", play.namespace)).status
        return held.last_schedule_time == due and held.last_successful_time is not None and not held.active

    await until_async(idle, within=WITHIN, saying="it says that its RayJob has ended")
    await until_async(lambda: is_gone(play, RayCluster, status.ray_cluster_name), within=WITHIN)


async def is_there(play: Play, name: str) -> bool:
    return not await is_gone(play, RayJob, name)


# RayServices.


@pytest.mark.parametrize(("name", "expected"), SERVICES.items(), ids=SERVICES)
async def test_a_service(client: Client, services: ServiceEnv, name: str, expected: ExpectedService) -> None:
    async def compare() -> None:
        service = await raw(client, RayService, sample(name)["metadata"]["name"], services.namespace)
        await check_service(services, service, expected)

    await passes(compare)


async def check_service(env: ServiceEnv, service: Json, expected: ExpectedService) -> None:
    status, name = service["status"], service["metadata"]["name"]
    assert conditions_of(service) == expected.conditions
    assert (status.get("serviceStatus", ""), status.get("numServeEndpoints", 0)) == (
        expected.status,
        expected.endpoints,
    )
    clusters = [
        item for item in await listed(env.client, RayCluster.resource, env.namespace) if is_made_by(item, service)
    ]
    assert not status.get("pendingServiceStatus", {}).get("rayClusterName")
    active = status.get("activeServiceStatus", {}).get("rayClusterName", "")
    assert [item["metadata"]["name"] for item in clusters] == ([active] if expected.cluster is not None else [])
    for cluster in clusters:
        assert expected.cluster is not None
        check_cluster_metadata(cluster, service)
        check_applications(env, service, active, expected)
        await check_cluster(env.client, cluster, expected.cluster)
    await check_addresses(env, service, active, expected)
    if expected.gateway:
        await check_gateway(env, name, active, expected.gateway)


def check_cluster_metadata(cluster: Json, service: Json) -> None:
    metadata, name = cluster["metadata"], service["metadata"]["name"]
    assert re.match(rf"^{name}-[a-z0-9]{{5}}$", metadata["name"])
    labels = {"ray.io/originated-from-cr-name": name, "ray.io/originated-from-crd": "RayService"}
    check(metadata["labels"], labels, "labels of the RayCluster")
    groups = len(service["spec"]["rayClusterConfig"].get("workerGroupSpecs", ()))
    annotations = {
        "ray.io/hash-without-replicas-and-workers-to-delete": re.compile(".+"),
        "ray.io/num-worker-groups": str(groups),
        "ray.io/kuberay-version": re.compile(".+"),
    }
    check(metadata["annotations"], annotations, "annotations of the RayCluster")


def check_applications(env: ServiceEnv, service: Json, active: str, expected: ExpectedService) -> None:
    """Ray Serve was told what the sample says, and the status says what Ray Serve says."""
    held = service["status"]["activeServiceStatus"]["applicationStatuses"]
    said = {
        name: {each: how["status"] for each, how in application.get("serveDeploymentStatuses", {}).items()}
        for name, application in held.items()
    }
    assert said == expected.applications
    assert {application["status"] for application in held.values()} == {"RUNNING"}
    told = yaml.safe_load(service["spec"]["serveConfigV2"])
    check(env.dashboard(active).serve_configs[-1], by_name(told), "what Ray Serve was told")


async def check_addresses(env: ServiceEnv, service: Json, active: str, expected: ExpectedService) -> None:
    """The two Services that stay while clusters change."""
    name = service["metadata"]["name"]
    items = await listed(env.client, OwnedService.resource, env.namespace)
    held = {item["metadata"]["name"]: item for item in items if is_made_by(item, service)}
    serves, head = expected.service.replace("{name}", name), f"{name}-head-svc"
    assert set(held) == ({serves, head} if expected.cluster is not None else set())
    if expected.cluster is None:
        return
    origin = {"ray.io/originated-from-cr-name": name, "ray.io/originated-from-crd": "RayService"}
    check(held[serves], expected.serve, serves)
    check(held[serves]["metadata"]["labels"], {**origin, "ray.io/serve": f"{name}-serve"}, serves)
    assert held[serves]["spec"]["selector"] == {"ray.io/cluster": active, "ray.io/serve": "true"}
    ports = {port["name"]: (port["port"], port["targetPort"]) for port in held[serves]["spec"]["ports"]}
    assert ports == expected.ports
    check(held[head], HEADLESS, head)
    check(held[head]["metadata"]["labels"], origin, head)
    selector = {"ray.io/cluster": active, "ray.io/node-type": "head"}
    check(held[head]["spec"]["selector"], selector, head)
    assert {port["name"]: port["port"] for port in held[head]["spec"]["ports"]} == expected.cluster.ports


async def check_gateway(env: ServiceEnv, name: str, active: str, kind: str) -> None:
    gateway = await raw(env.client, Gateway, f"{name}-gateway", env.namespace)
    listener = {"protocol": "HTTP", "port": 80}
    check(gateway["spec"], {"gatewayClassName": kind, "listeners": {"http": listener}}, "Gateway")
    route = await raw(env.client, HTTPRoute, f"{name}-httproute", env.namespace)
    backend = {"kind": "Service", "name": f"{active}-serve-svc", "port": 8000, "weight": 100}
    expected = {
        "parentRefs": {f"{name}-gateway": {"kind": "Gateway"}},
        "rules": [{"backendRefs": {f"{active}-serve-svc": backend}}],
    }
    check(route["spec"], expected, "HTTPRoute")
