"""What cannot be carried out of a RayJob."""

from gpu_control_plane.api.ray.job import RayJob
from gpu_control_plane.rules.ray.problem import Facts, Problem


def job_problems(item: RayJob, facts: Facts) -> tuple[Problem, ...]:
    """Everything that is wrong with it, in the order of its fields; empty if it can be carried out."""
    return ()
