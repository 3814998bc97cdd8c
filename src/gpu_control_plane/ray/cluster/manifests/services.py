from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest


def service_ports(context: ClusterContext) -> dict[str, int]:
    """Ports of the head by name."""
    raise NotImplementedError


def head_service(context: ClusterContext) -> Manifest:
    raise NotImplementedError


def headless_service(context: ClusterContext) -> Manifest | None:
    """None where no group has several hosts."""
    raise NotImplementedError


def serve_service(context: ClusterContext) -> Manifest | None:
    """None where the annotation does not ask for it, and where the head has no port for it."""
    raise NotImplementedError
