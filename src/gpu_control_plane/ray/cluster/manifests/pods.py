from gpu_control_plane.api.ray.cluster import WorkerGroupSpec
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest, ReplicaIdentity


def head_pod(context: ClusterContext) -> Manifest:
    raise NotImplementedError


def worker_pod(context: ClusterContext, group: WorkerGroupSpec, identity: ReplicaIdentity) -> Manifest:
    raise NotImplementedError


def expected_template_hash(context: ClusterContext, group: WorkerGroupSpec | None = None) -> str:
    """What the pods of a group carry if they are as the spec says; of the head without a group."""
    raise NotImplementedError
