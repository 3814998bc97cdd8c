"""What cannot be carried out of a RayCronJob."""

from gpu_control_plane.api.ray.cronjob import RayCronJob
from gpu_control_plane.rules.ray.problem import Facts, Problem


def cronjob_problems(item: RayCronJob, facts: Facts) -> tuple[Problem, ...]:
    """Everything that is wrong with it, in the order of its fields; empty if it can be carried out."""
    return ()
