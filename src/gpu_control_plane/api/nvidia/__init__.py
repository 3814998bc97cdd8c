"""The kinds of NVIDIA's operator, `nvidia.com`: the same manifests mean the same here.

A kind is loaded by whoever asks for it: commands that only read labels of Nodes have no use for ClusterPolicy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicy, ClusterPolicySpec
    from gpu_control_plane.api.nvidia.nvidiadriver import NVIDIADriver, NVIDIADriverSpec
    from gpu_control_plane.api.nvidia.stored import (
        ReadSpec,
        StoredClusterPolicy,
        StoredNVIDIADriver,
        UnreadableSpec,
        read_spec,
    )
    from gpu_control_plane.api.nvidia.unknown import ineffective_fields, unknown_fields
    from gpu_control_plane.kube.crd import Definition

    DEFINITIONS: tuple[Definition, ...]

__all__ = [
    "DEFINITIONS",
    "ClusterPolicy",
    "ClusterPolicySpec",
    "NVIDIADriver",
    "NVIDIADriverSpec",
    "ReadSpec",
    "StoredClusterPolicy",
    "StoredNVIDIADriver",
    "UnreadableSpec",
    "ineffective_fields",
    "read_spec",
    "unknown_fields",
]

_MODULES = {
    "ClusterPolicy": "clusterpolicy",
    "ClusterPolicySpec": "clusterpolicy",
    "NVIDIADriver": "nvidiadriver",
    "NVIDIADriverSpec": "nvidiadriver",
    "ReadSpec": "stored",
    "StoredClusterPolicy": "stored",
    "StoredNVIDIADriver": "stored",
    "UnreadableSpec": "stored",
    "ineffective_fields": "unknown",
    "read_spec": "stored",
    "unknown_fields": "unknown",
}


def __getattr__(name: str) -> object:
    if name == "DEFINITIONS":
        return tuple(import_module(f"{__name__}.{kind}").DEFINITION for kind in ("clusterpolicy", "nvidiadriver"))
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
