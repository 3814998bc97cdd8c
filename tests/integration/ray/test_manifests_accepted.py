"""A real API server takes every object of a RayCluster as it is made: nothing is refused, and no field is unknown."""

from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.transport import Call
from gpu_control_plane.ray.cluster.manifests import (
    ClusterContext,
    ReplicaIdentity,
    auth_secret,
    gcs_claim,
    head_pod,
    head_service,
    headless_service,
    ingress,
    network_policies,
    redis_cleanup_job,
    role,
    role_binding,
    serve_service,
    service_account,
    worker_pod,
)
from gpu_control_plane.ray.options import BatchScheduler, RayOptions
from gpu_control_plane.ray.scheduling import scheduler_for, scheduling_fields_of
from gpu_control_plane.rules.ray.gpus import PoolFacts, PoolResources

Json = dict[str, Any]

PLURALS = {
    "Pod": "pods",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "Secret": "secrets",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Ingress": "ingresses",
    "NetworkPolicy": "networkpolicies",
    "Job": "jobs",
}
POOL = PoolFacts(name="a", resources=("gpu.deckhouse.io/a",))
CARD = "gpu.deckhouse.io/a"


def template(**resources: Any) -> Json:
    container = {"name": "ray", "image": "rayproject/ray:2.60.0", "resources": {"limits": {"cpu": "1", **resources}}}
    return {"spec": {"containers": [container]}}


def of_account(held: Json) -> Json:
    """With the service account that admission would fill in; here it is off, without a controller-manager."""
    return {"spec": {**held["spec"], "serviceAccountName": "default"}}


def workers(name: str = "workers", **rest: Any) -> Json:
    return {"groupName": name, "template": template(memory="2Gi", **{CARD: 1}), "replicas": 2, **rest}


SPECS: dict[str, Json] = {
    "plain": {},
    "everything": {
        "rayVersion": "2.60.0",
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {"version": "v2", "env": [{"name": "A", "value": "1"}]},
        "headGroupSpec": {
            "template": template(memory="2Gi"),
            "enableIngress": True,
            "ingressOptions": {"host": "ray.example.org", "tls": [{"secretName": "s"}]},
            "resources": {"CPU": "0"},
            "labels": {"ray.io/region": "eu"},
        },
        "workerGroupSpecs": [workers(), workers("hosts", numOfHosts=2)],
        "authOptions": {"mode": "token"},
        "tlsOptions": {"enabled": True},
        "historyServerOptions": {
            "collectorOptions": {"image": "collector", "env": [{"name": "STORAGE_BACKEND", "value": "s3"}]}
        },
        "networkPolicy": {
            "worker": {"egressRules": [{"to": [{"namespaceSelector": {}}], "ports": [{"port": 53, "protocol": "UDP"}]}]}
        },
        "gcsFaultToleranceOptions": {
            "redisAddress": "redis:6379",
            "redisPassword": {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}},
        },
    },
    "on a volume": {
        "headGroupSpec": {"template": of_account(template())},
        "workerGroupSpecs": [workers(template=of_account(template()))],
        "authOptions": {"mode": "token", "enableK8sTokenAuth": True},
        "gcsFaultToleranceOptions": {"backend": "rocksdb", "storage": {"size": "2Gi", "deletionPolicy": "Retain"}},
    },
    "a service of the user": {
        "headGroupSpec": {
            "template": template(),
            "headService": {"metadata": {"name": "own"}, "spec": {"ports": [{"name": "mine", "port": 8265}]}},
            "serviceType": "NodePort",
        },
        "headServiceAnnotations": {"a": "b"},
    },
}


def ray_cluster(namespace: str, name: str, **spec: Any) -> RayCluster:
    whole = {"headGroupSpec": {"template": template()}, "workerGroupSpecs": [workers()], **spec}
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": "0d1e9f5a-7c1b-4b52-9c3d-1f2e3a4b5c6d",
        "annotations": {"ray.io/enable-serve-service": "true"},
        "labels": {"ray.io/gang-scheduling-enabled": "true"},
    }
    return msgspec.convert({"metadata": metadata, "spec": whole}, RayCluster)


def manifests(context: ClusterContext) -> list[Json]:
    groups = context.cluster.spec.worker_group_specs
    made = [
        head_pod(context),
        *(worker_pod(context, group, ReplicaIdentity(0, f"{group.group_name}-ab12c", 1)) for group in groups),
        head_service(context),
        headless_service(context),
        serve_service(context),
        ingress(context),
        service_account(context),
        role(context),
        role_binding(context),
        auth_secret(context, bytes(32)),
        gcs_claim(context),
        redis_cleanup_job(context),
        *network_policies(context),
    ]
    return [each for each in made if each is not None]


async def accept(client: Client, manifest: Json) -> None:
    """Create it without keeping it; fields that its kind does not have are errors."""
    group = f"apis/{manifest['apiVersion']}" if "/" in manifest["apiVersion"] else f"api/{manifest['apiVersion']}"
    plural = PLURALS[manifest["kind"]]
    call = Call(
        method="POST",
        path=f"/{group}/namespaces/{manifest['metadata']['namespace']}/{plural}",
        verb="create",
        resource=plural,
        params={"dryRun": "All", "fieldValidation": "Strict"},
        body=msgspec.json.encode(manifest),
    )
    await client.transport.send(call)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("name", ["rc", "a-cluster-with-the-longest-name-that-there-may-ever-be"[:53]])
async def test_every_object_is_accepted(client: Client, namespace: str, spec: Json, name: str) -> None:
    cluster = ray_cluster(namespace, name, **spec)
    options = RayOptions(
        default_pod_labels={"team": "default"},
        default_container_envs=({"name": "A", "value": "1"},),
        head_sidecars=({"name": "logs", "image": "logs"},),
        worker_sidecars=({"name": "logs", "image": "logs"},),
    )
    context = ClusterContext(
        cluster=cluster,
        options=options,
        gpus=PoolResources([POOL]),
        scheduling_fields=scheduling_fields_of(scheduler_for(BatchScheduler.YUNIKORN), cluster, cluster),
    )
    for manifest in manifests(context):
        await accept(client, manifest)
