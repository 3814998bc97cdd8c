"""What is made for a RayJob: its RayCluster, the Job of Kubernetes or the container that submits, the head's Service
that stays while clusters change. Pure."""

import copy
import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster, RayClusterSpec
from gpu_control_plane.api.ray.job import RayJob, SubmissionMode
from gpu_control_plane.api.ray.names import CREATED_BY, Annotation, Label, NodeType
from gpu_control_plane.kube.objects import LAST_APPLIED, controlled_by
from gpu_control_plane.ray.cluster.manifests.containers import Part, default_env, has_env, members, put_env
from gpu_control_plane.ray.cluster.manifests.context import RAY_JOB, ClusterContext, Manifest
from gpu_control_plane.ray.cluster.manifests.features import asks_for_token
from gpu_control_plane.ray.cluster.manifests.services import head_service
from gpu_control_plane.ray.dashboard.access import dashboard_port
from gpu_control_plane.ray.job.submission import runtime_env
from gpu_control_plane.ray.names import AUTH_TOKEN_KEY, head_service_name, identifier, label_value, token_secret_name
from gpu_control_plane.ray.scheduling import PodSchedulingFields

SUBMITTER: Final = "ray-job-submitter"
"""The container that submits, where nobody has named it otherwise."""

_BACKOFF_LIMIT: Final = 2
_SHELL: Final = ["/bin/bash", "-ce", "--"]
_RESOURCES: Final = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
_NO_ANNOTATIONS: Final[Mapping[str, str]] = {}
_DASHBOARD: Final = "http://$RAY_DASHBOARD_ADDRESS"
_HEALTHY: Final = (
    "import os, urllib.request as r; "
    "o = r.build_opener(r.ProxyHandler({})); "
    "o.open('http://' + os.environ['RAY_DASHBOARD_ADDRESS'] + '/api/gcs_healthz', timeout=5)"
)


def ray_cluster(job: RayJob, for_scheduler: Mapping[str, str] = _NO_ANNOTATIONS) -> Manifest:
    """The RayCluster of this try, with the labels and annotations of the RayJob, and those that a batch scheduler wants
    on all pods of a job."""
    spec = job.spec.ray_cluster_spec
    assert spec is not None  # noqa: S101 - a RayJob without one selects a cluster, or is not valid
    body = copy.deepcopy(msgspec.to_builtins(spec))
    annotations = {key: value for key, value in job.metadata.annotations.items() if key != LAST_APPLIED}
    annotations |= for_scheduler
    if job.spec.submission_mode is SubmissionMode.SIDECAR:
        annotations[Annotation.DISABLE_HEAD_RESTART.value] = "true"
        _add_sidecar(body, job, spec)
    return {
        "apiVersion": RayCluster.resource.api_version,
        "kind": RayCluster.resource.kind,
        "metadata": {
            "name": job.status.ray_cluster_name,
            "namespace": job.metadata.namespace,
            "labels": {
                **job.metadata.labels,
                **_origin(job),
                Label.JOB_SUBMISSION_MODE.value: str(job.spec.submission_mode),
            },
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": _owner(job),
        },
        "spec": body,
    }


def submitter_job(job: RayJob, cluster: RayCluster, scheduling_fields: PodSchedulingFields | None = None) -> Manifest:
    """The Job of Kubernetes that submits the job, and follows its log."""
    template = _submitter_template(job, cluster.spec)
    container = template["spec"]["containers"][0]
    if not container.get("command"):
        container |= {"command": _SHELL, "args": [follow_script(job)]}
    _add_environment(container, job.status.dashboard_url, job.status.job_id, cluster.name, cluster.spec)
    template["spec"].setdefault("restartPolicy", "Never")
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        **_origin(job),
        **(scheduling_fields.labels if scheduling_fields else {}),
    }
    if scheduling_fields is not None and scheduling_fields.annotations:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **scheduling_fields.annotations}
    if scheduling_fields is not None and scheduling_fields.scheduler_name:
        template["spec"].setdefault("schedulerName", scheduling_fields.scheduler_name)
    config = job.spec.submitter_config
    limit = config.backoff_limit if config is not None else None
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job.name,
            "namespace": job.metadata.namespace,
            "labels": {**_origin(job), Label.CREATED_BY.value: CREATED_BY},
            "ownerReferences": _owner(job),
        },
        "spec": {"backoffLimit": limit if limit is not None else _BACKOFF_LIMIT, "template": template},
    }


def job_head_service(job: RayJob, context: ClusterContext) -> Manifest:
    """The head's Service under the name of the RayJob: it stays while clusters change."""
    made = head_service(context)
    labels = {
        **_origin(job),
        Label.CREATED_BY.value: CREATED_BY,
        Label.NODE_TYPE.value: NodeType.HEAD.value,
        Label.IDENTIFIER.value: identifier(job.name, NodeType.HEAD),
    }
    metadata = {"name": head_service_name(job.name), "namespace": job.metadata.namespace, "labels": labels}
    spec = {key: value for key, value in made["spec"].items() if key not in _OF_ONE_SERVICE}
    return {**made, "metadata": {**metadata, "ownerReferences": _owner(job)}, "spec": _without_node_ports(spec)}


def suspended_workers(cluster: RayCluster) -> list[dict[str, Any]]:
    """The worker groups of a cluster, each suspended."""
    groups: list[dict[str, Any]] = msgspec.to_builtins(cluster.spec.worker_group_specs)
    return [{**group, "suspend": True} for group in groups]


def follow_script(job: RayJob) -> str:
    """Wait for Ray, submit the job unless Ray has it, and follow its log: a pod that is made anew does no harm."""
    known = f'ray job status --address {_DASHBOARD} "$RAY_JOB_SUBMISSION_ID" >/dev/null 2>&1'
    submit = f"ray job submit --address {_DASHBOARD} --no-wait {_options(job)} -- {job.spec.entrypoint}"
    logs = f'ray job logs --address {_DASHBOARD} --follow "$RAY_JOB_SUBMISSION_ID"'
    return f"{_wait()}\nif ! {known}; then\n{submit}\nfi\n{logs}\n"


def submit_script(job: RayJob) -> str:
    """Wait for Ray, and submit the job: this container ends with it."""
    return f"{_wait()}\nray job submit --address {_DASHBOARD} {_options(job)} -- {job.spec.entrypoint}\n"


def _wait() -> str:
    return f'until python3 -c "{_HEALTHY}" >/dev/null 2>&1; do echo "waiting for Ray"; sleep 2; done'


def _options(job: RayJob) -> str:
    spec = job.spec
    words: list[str] = []
    if environment := runtime_env(spec.runtime_env_yaml):
        words += ["--runtime-env-json", _literal(json.dumps(environment, sort_keys=True))]
    if spec.metadata:
        words += ["--metadata-json", _literal(json.dumps(spec.metadata, sort_keys=True))]
    words += ["--submission-id", '"$RAY_JOB_SUBMISSION_ID"']
    if spec.entrypoint_num_cpus > 0:
        words += ["--entrypoint-num-cpus", f"{spec.entrypoint_num_cpus:g}"]
    if spec.entrypoint_num_gpus > 0:
        words += ["--entrypoint-num-gpus", f"{spec.entrypoint_num_gpus:g}"]
    if spec.entrypoint_resources.strip():
        words += ["--entrypoint-resources", _literal(spec.entrypoint_resources.strip())]
    return " ".join(words)


def _literal(text: str) -> str:
    """A word of the script that stays as it is: neither the kubelet, which reads `$$` as `$`, nor the shell replaces
    anything in it."""
    return shlex.quote(text).replace("$", "$$")


def _submitter_template(job: RayJob, spec: RayClusterSpec) -> dict[str, Any]:
    if job.spec.submitter_pod_template is not None:
        given: dict[str, Any] = copy.deepcopy(job.spec.submitter_pod_template)
        if (given.get("spec") or {}).get("containers"):
            return given
        return {**given, "spec": {**(given.get("spec") or {}), "containers": [_submitter_container(spec)]}}
    head = spec.head_group_spec.template.get("spec") or {}
    pull = {"imagePullSecrets": head["imagePullSecrets"]} if head.get("imagePullSecrets") else {}
    return {"spec": {**copy.deepcopy(pull), "containers": [_submitter_container(spec)], "restartPolicy": "Never"}}


def _submitter_container(spec: RayClusterSpec) -> dict[str, Any]:
    ray = _ray_container(spec)
    pull = {"imagePullPolicy": ray["imagePullPolicy"]} if ray.get("imagePullPolicy") else {}
    return {"name": SUBMITTER, "image": ray.get("image", ""), **pull, "resources": copy.deepcopy(_RESOURCES)}


def _add_sidecar(body: dict[str, Any], job: RayJob, spec: RayClusterSpec) -> None:
    """Let the head's pod submit the job. It is not started a second time: that would run the job again."""
    pod = body["headGroupSpec"]["template"].setdefault("spec", {})
    container = {**_submitter_container(spec), "command": _SHELL, "args": [submit_script(job)]}
    address = f"127.0.0.1:{dashboard_port(spec)}"
    _add_environment(container, address, job.status.job_id, job.status.ray_cluster_name, spec)
    members(pod, "containers").append(container)
    pod["restartPolicy"] = "Never"


def _add_environment(container: Part, address: str, job_id: str, cluster: str, spec: RayClusterSpec) -> None:
    default_env(container, "PYTHONUNBUFFERED", "1")
    put_env(container, "RAY_DASHBOARD_ADDRESS", address)
    put_env(container, "RAY_JOB_SUBMISSION_ID", job_id)
    options = spec.auth_options
    if not asks_for_token(spec) or options is None or options.enable_k8s_token_auth:
        return
    default_env(container, "RAY_AUTH_MODE", "token")
    if not has_env(container, "RAY_AUTH_TOKEN"):
        key = {"name": token_secret_name(cluster, options), "key": AUTH_TOKEN_KEY}
        default_env(container, "RAY_AUTH_TOKEN", source={"secretKeyRef": key})


def _ray_container(spec: RayClusterSpec) -> Mapping[str, Any]:
    containers = (spec.head_group_spec.template.get("spec") or {}).get("containers") or [{}]
    found: Mapping[str, Any] = containers[0]
    return found


def _origin(job: RayJob) -> dict[str, str]:
    return {
        Label.ORIGINATED_FROM_NAME.value: label_value(job.name),
        Label.ORIGINATED_FROM_KIND.value: RAY_JOB,
    }


def _owner(job: RayJob) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(controlled_by(job.resource, job.name, job.metadata.uid))]


_OF_ONE_SERVICE: Final = frozenset({"loadBalancerIP", "externalIPs", "healthCheckNodePort", "clusterIPs"})
"""What a user can give to one Service only."""


def _without_node_ports(spec: dict[str, Any]) -> dict[str, Any]:
    if spec.get("clusterIP") not in (None, "None"):
        spec.pop("clusterIP")
    ports = [{key: value for key, value in port.items() if key != "nodePort"} for port in spec.get("ports") or ()]
    return {**spec, "ports": ports}
