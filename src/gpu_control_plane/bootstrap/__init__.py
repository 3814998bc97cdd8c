"""Bootstrap: whether the software of a GPU node is there, as conditions of its GPUNodeState. It writes nothing else."""

from gpu_control_plane.bootstrap.controller import build
from gpu_control_plane.bootstrap.snapshot import Settings

__all__ = ["Settings", "build"]
