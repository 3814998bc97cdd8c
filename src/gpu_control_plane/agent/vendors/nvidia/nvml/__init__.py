"""NVIDIA cards through NVML, the library of their driver."""

from gpu_control_plane.agent.vendors.nvidia.nvml.backend import NVMLBackend

__all__ = ["NVMLBackend"]
