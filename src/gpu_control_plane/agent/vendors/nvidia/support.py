"""NVIDIA behind the interface of vendors. NVML, its binding and CUDA are imported only where they are used."""

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, override

from gpu_control_plane.agent.backends.interface import Backend, Details
from gpu_control_plane.agent.backends.sysfs import Sysfs
from gpu_control_plane.agent.cdi.edits import Edits
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.vendors.interface import LabelFacts, VendorChecks, VendorSupport
from gpu_control_plane.agent.vendors.nvidia import labels as gfd
from gpu_control_plane.agent.vendors.nvidia.checks import CUDA, NVIDIAChecks, find_cuda
from gpu_control_plane.agent.vendors.nvidia.health import RULES
from gpu_control_plane.agent.vendors.nvidia.injection import VISIBLE_DEVICES, container_edits
from gpu_control_plane.agent.vendors.nvidia.pci import PCI_VENDOR
from gpu_control_plane.api.gpudevice import Vendor

_KERNEL: Final = "gpu_control_plane.agent.vendors.nvidia.cuda.kernel_check"
_BURN_IN: Final = "gpu_control_plane.agent.vendors.nvidia.cuda.burn_in"


class NVIDIA(VendorSupport):
    """NVIDIA's cards: NVML below, CUDA for checks, the labels of GPU Feature Discovery above."""

    vendor = Vendor.NVIDIA
    pci = PCI_VENDOR
    health = RULES
    container_driver_roots = (Path("/run/nvidia/driver"),)
    plugin_resources = (
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-",
        "volcano.sh/vgpu-number",
        "volcano.sh/vgpu-memory",
        "4paradigm.com/vgpu",
    )
    pause_labels = ("nvidia.com/gpu.deploy.",)
    kernel_step = CUDA
    visible_devices = VISIBLE_DEVICES
    runtime_handler = "nvidia"

    def open_backend(self, search: DriverSearch, sysfs: Sysfs) -> Backend:
        from gpu_control_plane.agent.vendors.nvidia.nvml import open_nvml  # noqa: PLC0415 - the binding is large

        return open_nvml(search, sysfs)

    def device_name(self, details: Details) -> str:
        return f"nvidia{details.minor if details.minor is not None else details.index}"

    def container_edits(self, version: str | None, search: DriverSearch, *, hooks: bool) -> Edits:
        return container_edits(version, search, hooks=hooks)

    @override
    def labels(self, facts: LabelFacts, held: Mapping[str, str], now: float) -> dict[str, str]:
        return gfd.labels(gfd.gfd_facts(facts), held, now)

    @override
    def owns_label(self, name: str) -> bool:
        return gfd.is_ours(name)

    def checks(self, search: DriverSearch, status_files: Path | None, extras: Collection[str]) -> VendorChecks:
        return NVIDIAChecks(search, status_files, extras)

    @override
    def kernel_command(self, search: DriverSearch) -> Sequence[str]:
        return _program(_KERNEL, search)

    @override
    def burn_in_command(self, search: DriverSearch) -> Sequence[str]:
        return _program(_BURN_IN, search)


SUPPORT: Final = NVIDIA()


def _program(module: str, search: DriverSearch) -> Sequence[str]:
    library = find_cuda(search)
    return (sys.executable, "-m", module, *(("--library", str(library)) if library else ()))
