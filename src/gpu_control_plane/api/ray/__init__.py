"""The kinds of KubeRay, `ray.io`: the same manifests mean the same here.

A kind is loaded by whoever asks for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_control_plane.api.ray.cluster import RayCluster, RayClusterSpec, RayClusterStatus
    from gpu_control_plane.api.ray.cronjob import RayCronJob
    from gpu_control_plane.api.ray.job import RayJob
    from gpu_control_plane.api.ray.service import RayService
    from gpu_control_plane.kube.crd import Definition

    DEFINITIONS: tuple[Definition, ...]

__all__ = [
    "DEFINITIONS",
    "RayCluster",
    "RayClusterSpec",
    "RayClusterStatus",
    "RayCronJob",
    "RayJob",
    "RayService",
]

_MODULES = {
    "RayCluster": "cluster",
    "RayClusterSpec": "cluster",
    "RayClusterStatus": "cluster",
    "RayCronJob": "cronjob",
    "RayJob": "job",
    "RayService": "service",
}


def __getattr__(name: str) -> object:
    if name == "DEFINITIONS":
        return tuple(
            import_module(f"{__name__}.{kind}").DEFINITION for kind in ("cluster", "job", "service", "cronjob")
        )
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
