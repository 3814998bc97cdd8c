from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest


def auth_secret(context: ClusterContext, token: bytes) -> Manifest | None:
    """The Secret with the token of the cluster, from 32 random bytes; None where none is made."""
    raise NotImplementedError
