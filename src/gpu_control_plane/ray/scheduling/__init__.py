"""Batch schedulers: what they are told of a cluster of Ray, so that its pods are scheduled together."""

from gpu_control_plane.ray.scheduling.schedulers import scheduler_for, scheduling_fields_of
from gpu_control_plane.ray.scheduling.surface import BatchSchedule, PodSchedulingFields, Refusal

__all__ = ["BatchSchedule", "PodSchedulingFields", "Refusal", "scheduler_for", "scheduling_fields_of"]
