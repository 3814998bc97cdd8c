"""Parameters of `ray start`."""

from gpu_control_plane.ray.cluster.manifests.context import ClusterContext


def start_param_problems(context: ClusterContext) -> list[tuple[str, str]]:
    """What cannot be read in the parameters of groups: path in the spec, and a sentence."""
    raise NotImplementedError
