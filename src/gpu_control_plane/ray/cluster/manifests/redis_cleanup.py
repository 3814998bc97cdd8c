"""The Job that removes the keys of a cluster from Redis when the cluster goes."""

from typing import Any, Final

from msgspec.structs import replace

from gpu_control_plane.api.ray.names import CREATED_BY, Annotation, Label, NodeType
from gpu_control_plane.ray.cluster.manifests.containers import equal_resources, has_env, put_env, ray_container
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest
from gpu_control_plane.ray.cluster.manifests.pods import head_pod
from gpu_control_plane.ray.cluster.manifests.start_command import shell
from gpu_control_plane.ray.names import redis_cleanup_job_name
from gpu_control_plane.rules.ray.fault_tolerance import REDIS_USERNAME_ENV

_DEADLINE_SECONDS: Final = 300
_OF_THE_HEAD: Final = (Annotation.RECREATE_HASH.value, Annotation.TEMPLATE_HASH.value)
_SCRIPT: Final = (
    'python -c "from ray._private.gcs_utils import cleanup_redis_storage; '
    "from urllib.parse import urlparse; "
    "import os; "
    "import sys; "
    "redis_address = os.getenv('RAY_REDIS_ADDRESS', '').split(',')[0]; "
    "redis_address = redis_address if '://' in redis_address else 'redis://' + redis_address; "
    "parsed = urlparse(redis_address); "
    "sys.exit(1) if not cleanup_redis_storage(host=parsed.hostname, port=parsed.port, {user}"
    "password=os.getenv('REDIS_PASSWORD', parsed.password or ''), use_ssl=parsed.scheme=='rediss', "
    "storage_namespace=os.getenv('RAY_external_storage_namespace')) else None\""
)
_USER: Final = "username=os.getenv('REDIS_USERNAME', parsed.username), "


def redis_cleanup_job(context: ClusterContext) -> Manifest:
    """A Job with the head's pod, of which only the Ray container is left. It needs no GPU, and tries only once."""
    pod = head_pod(_without_what_goes(context))
    spec: dict[str, Any] = pod["spec"]
    ray = ray_container(spec)
    spec["containers"] = [ray]
    ray["command"] = shell(context.options)
    ray["args"] = [_SCRIPT.format(user=_USER if has_env(ray, REDIS_USERNAME_ENV) else "")]
    ray.pop("livenessProbe", None)
    ray.pop("readinessProbe", None)
    put_env(ray, "RAY_redis_db_connect_retries", "120")
    put_env(ray, "RAY_redis_db_connect_wait_milliseconds", "500")
    ray["resources"] = equal_resources("200m", "256Mi")
    _drop_unused_claims(spec)
    spec["restartPolicy"] = "Never"
    spec.pop("schedulerName", None)
    given = context.cluster.spec.head_group_spec.template.get("spec") or {}
    if given.get("schedulerName"):
        spec["schedulerName"] = given["schedulerName"]
    scheduling_fields = context.group_scheduling_fields()
    labels = {key: value for key, value in pod["metadata"]["labels"].items() if key not in scheduling_fields.labels}
    labels[Label.NODE_TYPE.value] = NodeType.REDIS_CLEANUP.value
    labels[Label.CREATED_BY.value] = CREATED_BY  # The Job is found by it, whatever the template says.
    skipped = {*scheduling_fields.annotations, *_OF_THE_HEAD}
    annotations = {key: value for key, value in pod["metadata"]["annotations"].items() if key not in skipped}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": redis_cleanup_job_name(context.cluster.name),
            "namespace": context.namespace,
            "labels": labels,
            "annotations": annotations,
            # A deletion in the foreground would delete what blocks it, the Job that it waits for, too.
            "ownerReferences": [{**each, "blockOwnerDeletion": False} for each in context.owner_references()],
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": _DEADLINE_SECONDS,
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        },
    }


def _without_what_goes(context: ClusterContext) -> ClusterContext:
    """Without what makes a pod need objects of the cluster: its service account, the Secret with its token, its
    certificates. A deletion in the foreground takes them before this Job has ended, and Redis asks for none of them."""
    spec = replace(
        context.cluster.spec,
        enable_in_tree_autoscaling=None,
        auth_options=None,
        tls_options=None,
        history_server_options=None,
    )
    return replace(context, cluster=replace(context.cluster, spec=spec))


def _drop_unused_claims(spec: dict[str, Any]) -> None:
    """Claims hold devices for a pod whether a container uses them or not."""
    used = {
        claim.get("name")
        for container in spec.get("initContainers") or ()
        for claim in (container.get("resources") or {}).get("claims") or ()
    }
    kept = [claim for claim in spec.get("resourceClaims") or () if claim.get("name") in used]
    if kept:
        spec["resourceClaims"] = kept
    else:
        spec.pop("resourceClaims", None)
