"""What the driver says of the NVLink fabric that a card is on."""

from typing import Any

from gpu_control_plane.agent.vendors.nvidia.nvml.library import Library


def fabric_info(library: Library, handle: object) -> Any:
    """NVML's own structure; its state is 0 for a card on no fabric, and with a driver that does not tell."""
    info = library.nvml.c_nvmlGpuFabricInfo_v2_t()
    library.ask("nvmlDeviceGetGpuFabricInfoV", handle, library.nvml.byref(info))
    return info


def fabric_pending(library: Library, handle: object) -> bool:
    """Whether the card is on a fabric that is not set up, or could not be."""
    info = fabric_info(library, handle)
    return bool(info.state and (info.state != library.nvml.NVML_GPU_FABRIC_STATE_COMPLETED or info.status))
