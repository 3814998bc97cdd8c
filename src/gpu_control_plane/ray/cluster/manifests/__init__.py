"""What every object of a RayCluster looks like: whole manifests, from the spec and a `ClusterContext`. Pure.

The rules are KubeRay's. What is given is never changed: every manifest is a copy.
"""

from gpu_control_plane.ray.cluster.manifests.authentication import auth_secret
from gpu_control_plane.ray.cluster.manifests.autoscaler_access import (
    role,
    role_binding,
    service_account,
    users_account,
)
from gpu_control_plane.ray.cluster.manifests.certificates import certificate_name, certificates
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, ReplicaIdentity
from gpu_control_plane.ray.cluster.manifests.fault_tolerance import claim_differences, gcs_claim
from gpu_control_plane.ray.cluster.manifests.features import GcsBackend, gcs_backend
from gpu_control_plane.ray.cluster.manifests.hashes import recreate_hash, spec_hash
from gpu_control_plane.ray.cluster.manifests.ingress import ingress, route
from gpu_control_plane.ray.cluster.manifests.network_policies import network_policies
from gpu_control_plane.ray.cluster.manifests.pods import head_pod, worker_pod
from gpu_control_plane.ray.cluster.manifests.redis_cleanup import redis_cleanup_job
from gpu_control_plane.ray.cluster.manifests.services import (
    head_service,
    headless_service,
    serve_ports,
    serve_service,
    service_ports,
)
from gpu_control_plane.ray.cluster.manifests.start_problems import StartParamProblem, start_param_problems
from gpu_control_plane.ray.cluster.manifests.template_hash import template_hash

__all__ = [
    "ClusterContext",
    "GcsBackend",
    "ReplicaIdentity",
    "StartParamProblem",
    "auth_secret",
    "certificate_name",
    "certificates",
    "claim_differences",
    "gcs_backend",
    "gcs_claim",
    "head_pod",
    "head_service",
    "headless_service",
    "ingress",
    "network_policies",
    "recreate_hash",
    "redis_cleanup_job",
    "role",
    "role_binding",
    "route",
    "serve_ports",
    "serve_service",
    "service_account",
    "service_ports",
    "spec_hash",
    "start_param_problems",
    "template_hash",
    "users_account",
    "worker_pod",
]
