"""The resources of the group `gpu.deckhouse.io`: types to read and apply them, and their CRDs.

Everything a controller needs of the API is here; the modules behind it hold one kind or one part each. What is about
pools is loaded by whoever asks for it: the agent, which runs on every node, has no use for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpu_control_plane import __version__
from gpu_control_plane.api import gpudevice, gpunodestate
from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.identity import InventoryID, canonical_pci_address, inventory_id
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.kube.crd import Definition

if TYPE_CHECKING:
    from gpu_control_plane.api.gpuapproval import GPUApproval
    from gpu_control_plane.api.gpupool import GPUPool, PoolPhase

    DEFINITIONS: tuple[Definition, ...]

__all__ = [
    "DEFINITIONS",
    "DeviceState",
    "GPUApproval",
    "GPUDevice",
    "GPUNodeState",
    "GPUPool",
    "InventoryID",
    "PoolPhase",
    "canonical_pci_address",
    "crd_manifest",
    "inventory_id",
]


def crd_manifest(definition: Definition, version: str = __version__) -> dict[str, Any]:
    """The CRD as this release installs it: it carries the release's version."""
    return definition.manifest({str(Annotation.CRD_VERSION): version})


def __getattr__(name: str) -> object:
    if name not in {"DEFINITIONS", "GPUApproval", "GPUPool", "PoolPhase"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    gpupool = import_module("gpu_control_plane.api.gpupool")
    gpuapproval = import_module("gpu_control_plane.api.gpuapproval")
    if name == "DEFINITIONS":
        return (gpudevice.DEFINITION, gpunodestate.DEFINITION, gpupool.DEFINITION, gpuapproval.DEFINITION)
    return getattr(gpuapproval if name == "GPUApproval" else gpupool, name)
