"""The embedded cluster: a real control plane on this machine, for people, demos and tests."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_control_plane.local.binaries import ensure_binaries
    from gpu_control_plane.local.cluster import Cluster
    from gpu_control_plane.local.components import Component, Settings
    from gpu_control_plane.local.errors import LocalError
    from gpu_control_plane.local.folders import cache_folder
    from gpu_control_plane.local.node.real_node import RealNode
    from gpu_control_plane.local.programs import Binaries, Binary

__all__ = [
    "Binaries",
    "Binary",
    "Cluster",
    "Component",
    "LocalError",
    "RealNode",
    "Settings",
    "cache_folder",
    "ensure_binaries",
]

_HOMES = {
    "Binaries": "programs",
    "Binary": "programs",
    "Cluster": "cluster",
    "Component": "components",
    "LocalError": "errors",
    "RealNode": "node.real_node",
    "Settings": "components",
    "cache_folder": "folders",
    "ensure_binaries": "binaries",
}


def __getattr__(name: str) -> object:
    """Import on first use, so that commands which only look pay for nothing else."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
