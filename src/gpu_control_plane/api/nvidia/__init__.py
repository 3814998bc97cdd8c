"""The kinds of NVIDIA's operator, `nvidia.com`: the same manifests mean the same here."""

from gpu_control_plane.api.nvidia import clusterpolicy, nvidiadriver
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

DEFINITIONS = (clusterpolicy.DEFINITION, nvidiadriver.DEFINITION)

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
