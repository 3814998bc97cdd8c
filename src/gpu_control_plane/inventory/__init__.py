"""Inventory: what agents report about their nodes becomes GPUDevice and GPUNodeState objects (docs/inventory.md)."""

from gpu_control_plane.inventory.controller import build
from gpu_control_plane.inventory.snapshot import Settings

__all__ = ["Settings", "build"]
