"""Which values of the kuberay-operator chart may be used. They go to that chart as they are: it is upstream's own.

One table for every key that the chart has, so that a misspelt one is refused here and not ignored there. A controller
of ours that takes KubeRay's place would carry out the same keys.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpu_control_plane.gitops.refusals import RefusedKey

KEYS: Final[Mapping[str, str]] = {
    "affinity": "where the operator runs",
    "annotations": "of the Deployment",
    "batchScheduler": "gang scheduling of Ray's pods: `name`, or `enabled` for Volcano",
    "componentOverride": "a label of the operator's pods",
    "configuration": "environment, labels and sidecars for every pod of Ray",
    "crNamespacedRbacEnable": "whether Roles are made in the watched namespaces",
    "env": "switches of the operator, such as `ENABLE_INIT_CONTAINER_INJECTION`",
    "featureGates": "parts of the operator that are not on by default",
    "fullnameOverride": "of the Deployment",
    "hostUsers": "whether the operator has a user namespace of its own",
    "image": "of the operator",
    "imagePullSecrets": "for it",
    "kubeClient": "how fast the operator may call the API server",
    "labels": "of the Deployment",
    "leaderElectionEnabled": "needed for more than one replica",
    "livenessProbe": "of the operator",
    "logging": "format and place of its log",
    "metrics": "metrics, and a ServiceMonitor",
    "nameOverride": "of the Deployment",
    "nodeSelector": "where the operator runs",
    "operatorCommand": "the program",
    "podSecurityContext": "of the operator's pods",
    "priorityClassName": "of the operator's pods",
    "rbacEnable": "whether the chart makes roles",
    "readinessProbe": "of the operator",
    "reconcileConcurrency": "how many objects it works on at once",
    "replicas": "of the operator",
    "resources": "of the operator",
    "securityContext": "of the operator's container",
    "service": "of the operator",
    "serviceAccount": "of the operator",
    "singleNamespaceInstall": "Roles in place of ClusterRoles",
    "tolerations": "where the operator runs",
    "useKubernetesProxy": "how the operator reaches Ray's dashboards",
    "watchNamespace": "namespaces whose Ray clusters are looked after; all if empty",
}
SCHEDULERS: Final = ("volcano", "yunikorn", "scheduler-plugins", "kai-scheduler")
SWITCHES: Final = (
    "CLUSTER_DOMAIN",
    "DELETE_RAYJOB_CR_AFTER_JOB_FINISHES",
    "ENABLE_DETERMINISTIC_HEAD_POD_NAME",
    "ENABLE_GCS_FT_REDIS_CLEANUP",
    "ENABLE_INIT_CONTAINER_INJECTION",
    "ENABLE_LOGIN_SHELL",
    "ENABLE_PROBES_INJECTION",
    "ENABLE_RANDOM_POD_DELETE",
    "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE",
    "ENABLE_WEBHOOKS",
    "ENABLE_ZERO_DOWNTIME",
    "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV",
    "RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS",
    "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS",
    "USE_INGRESS_ON_OPENSHIFT",
)
"""The variables that the operator reads."""


def refused_keys(given: Mapping[str, Any], file: str) -> tuple[RefusedKey, ...]:
    """Keys that the chart does not have, and values with which the operator would not start."""
    return tuple(RefusedKey(file, key, why) for key, why in _faults(given))


def _faults(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from ((key, "KubeRay's chart has no such value.") for key in given if key not in KEYS)
    yield from _batch_scheduler(given.get("batchScheduler") or {})
    yield from _environment(given.get("env") or [])
    namespaces = given.get("watchNamespace")
    if namespaces is not None and not _texts(namespaces):
        yield "watchNamespace", "This is a list of namespaces."
    if given.get("singleNamespaceInstall") and len(namespaces or []) > 1:
        yield "singleNamespaceInstall", "It is for one namespace, and watchNamespace names several."
    if int(given.get("replicas") or 1) > 1 and not given.get("leaderElectionEnabled", True):
        yield "leaderElectionEnabled", "Several replicas without a leader would all act at once."


def _batch_scheduler(given: object) -> Iterator[tuple[str, str]]:
    if not isinstance(given, Mapping):
        yield "batchScheduler", "This is a map with `enabled` or `name`."
        return
    yield from (
        (f"batchScheduler.{key}", "KubeRay's chart has no such value.")
        for key in given
        if key not in ("enabled", "name")
    )
    name = given.get("name")
    if name and name not in SCHEDULERS:
        yield "batchScheduler.name", f"KubeRay knows {', '.join(SCHEDULERS)}."
    if name and given.get("enabled"):
        yield "batchScheduler.enabled", "It means Volcano, and excludes `name`."


def _environment(given: object) -> Iterator[tuple[str, str]]:
    if not isinstance(given, Sequence) or not all(isinstance(each, Mapping) and each.get("name") for each in given):
        yield "env", "This is a list of names and values."
        return
    for each in given:
        if each["name"] not in SWITCHES:
            yield f"env.{each['name']}", "KubeRay's operator reads no such variable."


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
