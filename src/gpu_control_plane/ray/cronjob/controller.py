"""stub"""

from gpu_control_plane.ray.parts import RayParts


def build(parts: RayParts) -> None:
    """stub"""
