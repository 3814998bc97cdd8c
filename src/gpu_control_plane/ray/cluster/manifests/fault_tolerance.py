from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest


def gcs_claim(context: ClusterContext) -> Manifest | None:
    """The PersistentVolumeClaim of the backend rocksdb; None where none is made. Without an owner if it is kept."""
    raise NotImplementedError
