"""NVIDIA cards through NVML, the library of their driver."""

from gpu_control_plane.agent.vendors.nvidia.nvml.backend import NVMLBackend
from gpu_control_plane.agent.vendors.nvidia.nvml.opening import open_nvml

__all__ = ["NVMLBackend", "open_nvml"]
