"""What cannot be carried out of a RayService."""

from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.rules.ray.problem import Facts, Problem


def service_problems(item: RayService, facts: Facts) -> tuple[Problem, ...]:
    """Everything that is wrong with it, in the order of its fields; empty if it can be carried out."""
    return ()
