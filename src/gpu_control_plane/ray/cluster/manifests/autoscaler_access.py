from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest


def service_account(context: ClusterContext) -> Manifest | None:
    """None without autoscaling, and where the user names one (which has to exist)."""
    raise NotImplementedError


def role(context: ClusterContext) -> Manifest | None:
    raise NotImplementedError


def role_binding(context: ClusterContext) -> Manifest | None:
    raise NotImplementedError
