"""Manifests of Ray as users have them: taken as they are, and kept whole; wrong ones are refused by the schema."""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import pytest

from gpu_control_plane.api.ray import RayCluster, RayCronJob, RayJob, RayService
from gpu_control_plane.api.ray.view import ANY
from gpu_control_plane.kube import Client, Object, Resource
from gpu_control_plane.kube.errors import Invalid
from integration.api.conftest import Ask
from ray_samples import NAMES, changed, sample

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
HEAD = "spec.headGroupSpec"
WORKER = "spec.workerGroupSpecs.0"
CLUSTER, JOB, SERVICE, CRON = "cluster-minimal", "job-simple", "service-simple", "cronjob-nightly"
RULES = "spec.deletionStrategy"
DEFAULTS: tuple[object, ...] = (0, 1, False, {}, [], "K8sJobMode")
STEPS = "spec.upgradeStrategy.clusterUpgradeOptions"

_TYPES = {kind.resource.kind: kind for kind in (RayCluster, RayJob, RayService, RayCronJob)}


class RawCluster(Object, frozen=True):
    resource: ClassVar[Resource] = RayCluster.resource
    spec: dict[str, Any] = {}


class RawJob(Object, frozen=True):
    resource: ClassVar[Resource] = RayJob.resource
    spec: dict[str, Any] = {}


class RawService(Object, frozen=True):
    resource: ClassVar[Resource] = RayService.resource
    spec: dict[str, Any] = {}


class RawCronJob(Object, frozen=True):
    resource: ClassVar[Resource] = RayCronJob.resource
    spec: dict[str, Any] = {}


class OlderCluster(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("ray.io", "v1alpha1", "RayCluster", "rayclusters")
    spec: dict[str, Any] = {}


type Raw = RawCluster | RawJob | RawService | RawCronJob
_RAW: dict[str, type[Raw]] = {kind.resource.kind: kind for kind in (RawCluster, RawJob, RawService, RawCronJob)}


async def create(client: Client, namespace: str, manifest: Mapping[str, Any]) -> Raw:
    return await client.create(_RAW[manifest["kind"]], manifest, namespace)


def lost(written: object, kept: object, path: str = "spec") -> list[str]:
    """Where what was written is not what is kept; what the API server has added does not count."""
    if isinstance(written, dict) and isinstance(kept, dict):
        return [place for key, value in written.items() for place in lost(value, kept.get(key), f"{path}.{key}")]
    if isinstance(written, list) and isinstance(kept, list) and len(written) == len(kept):
        return [
            place
            for index, pair in enumerate(zip(written, kept, strict=True))
            for place in lost(*pair, f"{path}[{index}]")
        ]
    return [] if written == kept else [path]


def without_defaults(written: Any) -> Any:
    """What is left of a manifest without values that are the same as none; templates of pods are left as they are."""
    if isinstance(written, list):
        return [without_defaults(one) for one in written]
    if not isinstance(written, dict):
        return written
    return {
        key: value if key == "template" else without_defaults(value)
        for key, value in written.items()
        if value not in DEFAULTS
    }


@pytest.mark.parametrize("name", NAMES)
async def test_a_sample_is_taken_and_kept_whole(client: Client, namespace: str, name: str) -> None:
    manifest = sample(name)
    made = await create(client, namespace, manifest)
    assert lost(manifest["spec"], made.spec) == []
    read = msgspec.json.decode(msgspec.json.encode(await client.get(_TYPES[manifest["kind"]], made.name, namespace)))
    assert lost(without_defaults(manifest["spec"]), read["spec"]) == []


async def test_what_the_api_fills_in_is_what_kuberay_fills_in(client: Client, namespace: str) -> None:
    manifest = changed(CLUSTER, dict.fromkeys((f"{WORKER}.{name}" for name in ("replicas", "minReplicas")), None))
    spec = (await create(client, namespace, changed(CLUSTER, {"spec": manifest["spec"]}))).spec
    group = spec["workerGroupSpecs"][0]
    assert {name: group[name] for name in ("replicas", "minReplicas", "numOfHosts")} == {
        "replicas": 0,
        "minReplicas": 0,
        "numOfHosts": 1,
    }
    assert set(spec) == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    job = (await create(client, namespace, sample(JOB))).spec
    assert job.keys() - sample(JOB)["spec"].keys() == {"submissionMode", "backoffLimit", "ttlSecondsAfterFinished"}


async def test_the_older_version_is_the_same_object_and_says_that_it_is_old(client: Client, namespace: str) -> None:
    manifest = changed(CLUSTER, {"apiVersion": "ray.io/v1alpha1"})
    await client.create(OlderCluster, manifest, namespace)
    assert lost(manifest["spec"], (await client.get(RawCluster, "minimal", namespace)).spec) == []


REFUSED: list[tuple[str, Mapping[str, object], str]] = [
    (CLUSTER, {HEAD: None}, "spec.headGroupSpec: Required value"),
    (CLUSTER, {f"{WORKER}.template": None}, "spec.workerGroupSpecs[0].template: Required value"),
    (CLUSTER, {f"{WORKER}.groupName": None}, "spec.workerGroupSpecs[0].groupName: Required value"),
    (CLUSTER, {f"{HEAD}.template.spec.containers": None}, "spec.headGroupSpec.template.spec.containers: Required"),
    (
        CLUSTER,
        {f"{HEAD}.template.spec.containers.0.env": [{"name": "A", "value": 1}]},
        'spec.headGroupSpec.template.spec.containers[0].env[0].value: Invalid value: "integer"',
    ),
    (
        CLUSTER,
        {f"{HEAD}.template.spec.containers.0.resources": {"limits": {"cpu": "many"}}},
        "spec.headGroupSpec.template.spec.containers[0].resources.limits.cpu",
    ),
    (CLUSTER, {f"{HEAD}.rayStartParams": {"num-cpus": 0}}, "spec.headGroupSpec.rayStartParams.num-cpus"),
    (CLUSTER, {"spec.upgradeStrategy": {"type": "Replace"}}, '"Recreate", "RollingUpdate"'),
    (CLUSTER, {"spec.authOptions": {"mode": "basic"}}, '"disabled", "token"'),
    (CLUSTER, {"spec.autoscalerOptions": {"version": "v3"}}, '"v1", "v2"'),
    (CLUSTER, {"spec.autoscalerOptions": {"upscalingMode": "Fast"}}, '"Default", "Aggressive", "Conservative"'),
    (CLUSTER, {"spec.gcsFaultToleranceOptions": {"backend": "etcd"}}, '"redis", "rocksdb"'),
    (
        CLUSTER,
        {"spec.gcsFaultToleranceOptions": {"storage": {"deletionPolicy": "Delete"}}},
        '"DeleteWithCluster", "Retain"',
    ),
    (CLUSTER, {"spec.gcsFaultToleranceOptions": {"storage": {"size": "big"}}}, "storage.size"),
    (CLUSTER, {"spec.networkPolicy": {"mode": "AllowAll"}}, '"DenyAll", "DenyAllIngress", "DenyAllEgress"'),
    (
        CLUSTER,
        {"spec.networkPolicy": {"workerGroups": [{"groupName": "a"}, {"groupName": "a"}]}},
        "spec.networkPolicy.workerGroups[1]: Duplicate value",
    ),
    (CRON, {"spec.startingDeadlineSeconds": 0}, "spec.startingDeadlineSeconds: Invalid value: 0"),
    (CLUSTER, {"spec.managedBy": "me"}, '"ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"'),
    (
        JOB,
        {RULES: {"deletionRules": [{"policy": "DeleteSelf", "condition": {}}]}},
        "A condition has either jobStatus or jobDeploymentStatus: name one of the two.",
    ),
    (
        JOB,
        {
            RULES: {
                "deletionRules": [
                    {"policy": "DeleteSelf", "condition": {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed"}}
                ]
            }
        },
        "A condition has either jobStatus or jobDeploymentStatus: name one of the two.",
    ),
    (
        JOB,
        {RULES: {"deletionRules": [{"policy": "DeleteSelf", "condition": {"jobStatus": "STOPPED"}}]}},
        '"SUCCEEDED", "FAILED"',
    ),
    (
        JOB,
        {RULES: {"deletionRules": [{"policy": "DeleteSelf", "condition": {"jobStatus": "FAILED", "ttlSeconds": -1}}]}},
        "should be greater than or equal to 0",
    ),
    (
        JOB,
        {RULES: {"deletionRules": [{"policy": "DeleteAll", "condition": {"jobStatus": "FAILED"}}]}},
        '"DeleteCluster", "DeleteWorkers", "DeleteSelf", "DeleteNone"',
    ),
    (JOB, {RULES: {"deletionRules": []}}, "should have at least 1 items"),
    (JOB, {RULES: {}}, "A deletionStrategy needs deletionRules"),
    (JOB, {RULES: {"onSuccess": {"policy": "DeleteSelf"}}}, "A deletionStrategy needs deletionRules"),
    (
        JOB,
        {
            RULES: {
                "deletionRules": [{"policy": "DeleteSelf", "condition": {"jobStatus": "FAILED"}}],
                "onSuccess": {"policy": "DeleteSelf"},
            }
        },
        "deletionRules and the deprecated onSuccess and onFailure exclude each other: keep deletionRules.",
    ),
    (JOB, {"spec.preRunningDeadlineSeconds": 0}, "should be greater than or equal to 1"),
    (SERVICE, {"spec.rayClusterConfig": None}, "spec.rayClusterConfig: Required value"),
    (SERVICE, {"spec.rayClusterDeletionDelaySeconds": -1}, "should be greater than or equal to 0"),
    (
        "service-incremental-upgrade",
        {f"{STEPS}.gatewayClassName": None},
        f"{STEPS}.gatewayClassName: Required value",
    ),
    (CRON, {"spec.schedule": None}, "spec.schedule: Required value"),
    (CRON, {"spec.concurrencyPolicy": "Never"}, '"Allow", "Forbid", "Replace"'),
    (CRON, {"spec.successfulJobsHistoryLimit": -1}, "should be greater than or equal to 0"),
]


@pytest.mark.parametrize(("name", "edits", "says"), REFUSED, ids=[f"{row[0]} {','.join(row[1])}" for row in REFUSED])
async def test_a_wrong_manifest_is_refused(
    client: Client, namespace: str, name: str, edits: Mapping[str, object], says: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await create(client, namespace, changed(name, edits))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "edits"),
    [
        (JOB, {"spec.submissionMode": "PostMode"}),
        (SERVICE, {"spec.upgradeStrategy": {"type": "Recreate"}}),
        (JOB, {"spec.ttlSecondsAfterFinished": -1}),
        (CLUSTER, {f"{WORKER}.minReplicas": -1}),
    ],
)
async def test_what_kuberays_schema_takes_is_taken(
    client: Client, namespace: str, name: str, edits: Mapping[str, object]
) -> None:
    """Though it cannot be carried out, which the status says, and the webhook before."""
    await create(client, namespace, changed(name, edits))


US, MULTIKUEUE = "ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"
UPDATES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    *(
        (changed(name, {"spec.managedBy": before}), {"managedBy": after}, "managedBy cannot be changed: make a new")
        for name, before, after in ((CLUSTER, US, MULTIKUEUE), (JOB, MULTIKUEUE, US), (SERVICE, US, MULTIKUEUE))
    ),
    *(
        (
            changed("cluster-redis", {"spec.gcsFaultToleranceOptions.backend": before}),
            {"gcsFaultToleranceOptions": {"backend": after}},
            "The backend cannot be changed: the state is in the one that the cluster began with.",
        )
        for before, after in ((None, "rocksdb"), ("rocksdb", None), ("redis", "rocksdb"))
    ),
]


@pytest.mark.parametrize(("manifest", "patch", "says"), UPDATES)
async def test_what_holds_for_good_is_not_changed(
    client: Client, namespace: str, manifest: dict[str, Any], patch: dict[str, Any], says: str
) -> None:
    made = await create(client, namespace, manifest)
    with pytest.raises(Invalid) as caught:
        await client.patch(type(made), made.name, {"spec": patch}, namespace=namespace)
    assert says in str(caught.value)


async def test_a_backend_may_be_named_as_it_is(client: Client, namespace: str) -> None:
    made = await create(client, namespace, sample("cluster-redis"))
    spec = {"gcsFaultToleranceOptions": {"backend": "redis"}}
    assert (await client.patch(type(made), made.name, {"spec": spec}, namespace=namespace)).name == "redis"


async def test_a_status_of_kuberays_operator_is_kept_whole(client: Client, namespace: str) -> None:
    """Also with states that this release does not know."""
    at = "2026-11-18T12:00:00Z"
    status = {
        "state": "ready",
        "desiredCPU": "3",
        "desiredMemory": "4Gi",
        "desiredGPU": "0",
        "desiredTPU": "0",
        "desiredWorkerReplicas": 1,
        "endpoints": {"dashboard": "8265"},
        "head": {"podIP": "10.0.0.1", "podName": "a", "serviceIP": "10.0.0.1", "serviceName": "a-head-svc"},
        "stateTransitionTimes": {"ready": at, "suspended": at},
        "lastUpdateTime": at,
        "conditions": [
            {"type": "HeadPodReady", "status": "True", "reason": "Fine", "message": "", "lastTransitionTime": at}
        ],
    }
    made = await create(client, namespace, sample(CLUSTER))
    await client.patch(RawCluster, made.name, {"status": status}, namespace=namespace, subresource="status")
    read = await client.get(RayCluster, made.name, namespace)
    kept = msgspec.to_builtins(read.status)
    assert lost(status | {"conditions": []}, kept | {"conditions": []}, "status") == []
    job = await create(client, namespace, sample(JOB))
    later = {"jobStatus": "PAUSED", "jobDeploymentStatus": "Dreaming", "rayClusterStatus": {"state": "asleep"}}
    await client.patch(RawJob, job.name, {"status": later}, namespace=namespace, subresource="status")
    assert (await client.get(RayJob, job.name, namespace)).status.job_deployment_status == "Dreaming"


async def test_columns_show_what_kuberays_show(client: Client, ask: Ask, namespace: str) -> None:
    for name in (CLUSTER, JOB, SERVICE, CRON):
        await create(client, namespace, sample(name))
    shown = {
        kind.resource.kind: [
            column["name"]
            for column in ask(kind.resource.path(namespace=namespace), TABLE)["columnDefinitions"]
            if not column["priority"]
        ]
        for kind in ANY
    }
    assert shown == {
        "RayCluster": ["Name", "desired workers", "available workers", "cpus", "memory", "gpus", "status", "Age"],
        "RayJob": ["Name", "job status", "deployment status", "ray cluster name", "start time", "end time", "Age"],
        "RayService": ["Name", "service status", "num serve endpoints", "Age"],
        "RayCronJob": ["Name", "schedule", "suspend", "last schedule", "Age"],
    }
