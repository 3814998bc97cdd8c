"""The resources of the group `gpu.deckhouse.io`: types to read and apply them, and what the API server is told.

Everything a controller needs of the API is here; the modules behind it hold one kind or one part each.
"""

from gpu_control_plane.api import gpudevice, gpunodestate, gpupool
from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool, PoolPhase
from gpu_control_plane.api.identity import InventoryID, canonical_pci_address, inventory_id

DEFINITIONS = (gpudevice.DEFINITION, gpunodestate.DEFINITION, gpupool.DEFINITION)

__all__ = [
    "DEFINITIONS",
    "DeviceState",
    "GPUDevice",
    "GPUNodeState",
    "GPUPool",
    "InventoryID",
    "PoolPhase",
    "canonical_pci_address",
    "inventory_id",
]
