"""Batch schedulers: what they are told of a cluster of Ray, so that its pods are scheduled together."""

from gpu_control_plane.ray.scheduling.schedulers import marks_of, scheduler_for
from gpu_control_plane.ray.scheduling.surface import BatchSchedule, PodMarks, Refusal

__all__ = ["BatchSchedule", "PodMarks", "Refusal", "marks_of", "scheduler_for"]
