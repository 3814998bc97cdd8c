from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest


def network_policies(context: ClusterContext) -> list[Manifest]:
    raise NotImplementedError
