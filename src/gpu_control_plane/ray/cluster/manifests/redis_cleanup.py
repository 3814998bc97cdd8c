from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest


def redis_cleanup_job(context: ClusterContext) -> Manifest:
    raise NotImplementedError
