"""The cards of a node, from what NVML and the kernel report."""

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gpu_control_plane.agent.backends.interface import CardLost, Details
from gpu_control_plane.agent.backends.sysfs import Sysfs
from gpu_control_plane.agent.vendors.nvidia.nvml.fabric_info import fabric_info
from gpu_control_plane.agent.vendors.nvidia.nvml.library import Library
from gpu_control_plane.agent.vendors.nvidia.nvml.mig import capability
from gpu_control_plane.agent.vendors.nvidia.pci import PCI_VENDOR
from gpu_control_plane.api.gpudevice import PCI, Hardware, Vendor
from gpu_control_plane.api.identity import canonical_pci_address

MIB: Final = 1 << 20

_ARCHITECTURES: Final = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
_COMPUTE_CLASS: Final = "0302"


class Card(msgspec.Struct, frozen=True):
    """A card that the driver knows."""

    handle: Any
    hardware: Hardware
    details: Details

    @property
    def address(self) -> str:
        return self.hardware.pci.address


def read_cards(library: Library, sysfs: Sysfs) -> dict[str, Card]:
    """Every card that answers, by address, in the order of addresses."""
    handles = dict(sorted(_handles(library)))
    return {
        address: _card(library, sysfs, index, address, {at: handle for at, (_, handle) in handles.items()})
        for address, (index, _) in handles.items()
    }


def address_of(library: Library, handle: object) -> str:
    return canonical_pci_address(library.call("nvmlDeviceGetPciInfo", handle).busId)


def _handles(library: Library) -> Iterator[tuple[str, tuple[int, Any]]]:
    """The driver's index and handle of each card. A lost card has an index but no handle."""
    for index in range(library.call("nvmlDeviceGetCount")):
        try:
            handle = library.call("nvmlDeviceGetHandleByIndex", index)
            yield address_of(library, handle), (index, handle)
        except CardLost:
            continue


def _card(library: Library, sysfs: Sysfs, index: int, address: str, handles: Mapping[str, Any]) -> Card:
    handle = handles[address]
    on_bus = sysfs.card(address, (PCI_VENDOR,))
    memory = library.ask("nvmlDeviceGetMemoryInfo", handle)
    capable_of = library.ask("nvmlDeviceGetCudaComputeCapability", handle)
    links = _links(library, address, handles)
    hardware = Hardware(
        vendor=Vendor.NVIDIA,
        product=library.ask("nvmlDeviceGetName", handle) or "NVIDIA GPU",
        uuid=library.ask("nvmlDeviceGetUUID", handle),
        pci=on_bus.pci if on_bus else _pci(library, handle, address),
        memory_mib=memory.total // MIB if memory else None,
        compute_capability="{}.{}".format(*capable_of) if capable_of else None,
        architecture=_ARCHITECTURES.get(library.ask("nvmlDeviceGetArchitecture", handle)),
        numa_node=on_bus.numa_node if on_bus else None,
        nvlink_peers=tuple(sorted(links)),
        mig=capability(library, handle, memory.total // MIB if memory else 0),
    )
    details = Details(
        index=index,
        minor=library.ask("nvmlDeviceGetMinorNumber", handle),
        serial=library.ask("nvmlDeviceGetSerial", handle),
        pci_root=on_bus.root if on_bus else None,
        links=links,
        clique=_clique(library, handle),
    )
    return Card(handle, hardware, details)


def _pci(library: Library, handle: object, address: str) -> PCI:
    """For agents that cannot read /sys. NVML's number has the device before the vendor."""
    number = library.call("nvmlDeviceGetPciInfo", handle).pciDeviceId
    return PCI(vendor=f"{number & 0xFFFF:04x}", device=f"{number >> 16:04x}", class_=_COMPUTE_CLASS, address=address)


def _links(library: Library, address: str, handles: Mapping[str, Any]) -> dict[str, int]:
    """The number of NVLinks to each other card; links to a switch count for every card behind it."""
    handle = handles[address]
    ends: Counter[str] = Counter()
    for link in range(library.nvml.NVML_NVLINK_MAX_LINKS):
        active = library.ask("nvmlDeviceGetNvLinkState", handle, link)
        if active is None:
            break
        remote = library.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link) if active else None
        if remote is not None:
            ends[canonical_pci_address(remote.busId)] += 1
    switched = sum(count for end, count in ends.items() if end not in handles)
    links = {other: ends[other] for other in handles if ends[other] and other != address}
    for other in handles if switched else ():
        if other not in links and other != address and _reaches(library, handle, handles[other]):
            links[other] = switched
    return links


def _reaches(library: Library, handle: object, other: object) -> bool:
    over_nvlink = library.nvml.NVML_P2P_CAPS_INDEX_NVLINK
    return bool(library.ask("nvmlDeviceGetP2PStatus", handle, other, over_nvlink) == library.nvml.NVML_P2P_STATUS_OK)


def _clique(library: Library, handle: object) -> str | None:
    """The clique of the card on an NVLink fabric of several nodes."""
    info = fabric_info(library, handle)
    cluster = uuid.UUID(bytes=bytes(info.clusterUuid))
    if info.state != library.nvml.NVML_GPU_FABRIC_STATE_COMPLETED or info.status or not cluster.int:
        return None
    return f"{cluster}.{info.cliqueId}"
