"""NetworkPolicies: one for the head and one for each worker group. Pods of one cluster always reach each other.

DNS is not among what they may reach: where it runs is the user's to say.
"""

import copy
from collections.abc import Iterable
from typing import Any, Final

from gpu_control_plane.api.ray.cluster import NetworkRules
from gpu_control_plane.api.ray.names import GROUP, HEAD_GROUP, Label, NodeType
from gpu_control_plane.kube.objects import OwnerReference
from gpu_control_plane.ray.cluster.manifests.context import RAY_JOB, ClusterContext, Manifest
from gpu_control_plane.ray.cluster.manifests.labels import object_labels
from gpu_control_plane.ray.names import DASHBOARD_PORT
from gpu_control_plane.rules.ray.security import DENY_ALL_EGRESS, DENY_ALL_INGRESS

_SUBMITTED_BY_JOB: Final = "K8sJobMode"


def network_policies(context: ClusterContext) -> list[Manifest]:
    """The policies that there should be; those of groups that are gone are not among them."""
    asked = context.cluster.spec.network_policy
    if asked is None:
        return []
    name = context.cluster.name
    head = _policy(context, f"{name}-head", {}, asked.head, _submitter(context))
    rules = {each.group_name: each for each in reversed(asked.worker_groups)}  # Of two for one group, the first.
    workers = (
        _policy(context, f"{name}-workers-{group}", {Label.GROUP.value: group}, rules.get(group, asked.worker))
        for group in (each.group_name for each in context.cluster.spec.worker_group_specs)
    )
    return [head, *workers]


def _submitter(context: ClusterContext) -> list[dict[str, Any]]:
    """That the pod which submits the job of a RayJob may call the head's dashboard."""
    metadata = context.cluster.metadata
    if metadata.labels.get(Label.JOB_SUBMISSION_MODE.value) != _SUBMITTED_BY_JOB:
        return []
    jobs = (owner for owner in metadata.owner_references if _is_job(owner))
    port = context.cluster.spec.head_group_spec.ray_start_params.get("dashboard-port", "")
    number = int(port) if port.isascii() and port.isdigit() else DASHBOARD_PORT
    return [
        {
            "from": [
                {
                    "podSelector": {
                        "matchLabels": {
                            Label.ORIGINATED_FROM_NAME.value: job.name,
                            Label.ORIGINATED_FROM_KIND.value: RAY_JOB,
                        }
                    }
                }
            ],
            "ports": [{"protocol": "TCP", "port": number}],
        }
        for job in jobs
    ]


def _is_job(owner: OwnerReference) -> bool:
    return owner.controller and owner.kind == RAY_JOB and owner.api_version.startswith(f"{GROUP}/")


def _policy(
    context: ClusterContext,
    name: str,
    group: dict[str, str],
    rules: NetworkRules | None,
    callers: Iterable[dict[str, Any]] = (),
) -> Manifest:
    mode = context.cluster.spec.network_policy.mode if context.cluster.spec.network_policy is not None else ""
    within = [{"podSelector": {"matchLabels": {Label.CLUSTER.value: context.cluster.name}}}]
    node_type = NodeType.WORKER if group else NodeType.HEAD
    selector = {Label.CLUSTER.value: context.cluster.name, Label.NODE_TYPE.value: node_type.value, **group}
    types: list[str] = []
    spec: dict[str, Any] = {"podSelector": {"matchLabels": selector}, "policyTypes": types}
    if mode != DENY_ALL_EGRESS:
        types.append("Ingress")
        spec["ingress"] = [{"from": within}, *callers, *_completed(rules.ingress_rules if rules else ())]
    if mode != DENY_ALL_INGRESS:
        types.append("Egress")
        spec["egress"] = [{"to": within}, *_completed(rules.egress_rules if rules else ())]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name,
            "namespace": context.namespace,
            "labels": object_labels(context) | {Label.GROUP.value: HEAD_GROUP, **group},
            "ownerReferences": context.owner_references(),
        },
        "spec": spec,
    }


def _completed(rules: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rules as the API server keeps them: with the protocol that it adds, so that they are not taken for changed."""
    found = copy.deepcopy(list(rules))
    for rule in found:
        ports = rule.get("ports")
        for port in ports if isinstance(ports, list) else ():
            if isinstance(port, dict):  # The API server refuses the policy otherwise, and says why.
                port.setdefault("protocol", "TCP")
    return found
