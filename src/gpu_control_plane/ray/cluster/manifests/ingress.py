from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest


def ingress(context: ClusterContext) -> Manifest | None:
    """None where none is asked for, and where a Route is made."""
    raise NotImplementedError


def route(context: ClusterContext) -> Manifest | None:
    raise NotImplementedError
