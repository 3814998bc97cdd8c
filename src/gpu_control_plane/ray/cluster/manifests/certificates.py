from collections.abc import Iterable

from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest


def certificates(context: ClusterContext, head_ips: Iterable[str], worker_ips: Iterable[str]) -> list[Manifest]:
    """Issuers and Certificates of cert-manager, in the order in which they are made; empty without TLS."""
    raise NotImplementedError
