"""What cannot be carried out of a RayCluster."""

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.rules.ray.problem import Facts, Problem


def cluster_problems(item: RayCluster, facts: Facts) -> tuple[Problem, ...]:
    """Everything that is wrong with it, in the order of its fields; empty if it can be carried out."""
    return ()
