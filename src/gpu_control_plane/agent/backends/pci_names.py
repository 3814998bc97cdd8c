"""The product names of cards without a driver: from the host's list of PCI devices, else from the vendor's folder."""

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from gpu_control_plane.agent.backends.sysfs import PCIVendor
from gpu_control_plane.api.gpudevice import PCI, Vendor

LISTS: Final = (Path("/usr/share/misc/pci.ids"), Path("/usr/share/hwdata/pci.ids"))


class ProductNames:
    """Reads the first list there is, only when a name is asked for."""

    def __init__(self, vendors: Sequence[PCIVendor], lists: Sequence[Path] = LISTS) -> None:
        self._vendors = frozenset(vendor.id for vendor in vendors)
        self._known = {(vendor.id, device): name for vendor in vendors for device, name in vendor.products.items()}
        self._lists = lists

    def of(self, vendor: Vendor, pci: PCI) -> str:
        """Such as `NVIDIA H200`, or `NVIDIA device 2335` where no list has it."""
        present = next((file for file in self._lists if file.is_file()), None)
        listed = _listed(present, self._vendors) if present else {}
        number = pci.vendor, pci.device
        return f"{vendor} {listed.get(number) or self._known.get(number) or f'device {pci.device}'}"[:128]


@cache
def _listed(file: Path, vendors: frozenset[str]) -> Mapping[tuple[str, str], str]:
    """Once a process: a node without a driver looks at its bus again and again."""
    return dict(_entries(file, vendors))


def _entries(file: Path, vendors: Container[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """The cards of these vendors: the list has tens of thousands of devices.

    Vendors stand at the margin, their devices one tab in; classes, at the end of the file, begin with a C.
    """
    vendor = ""
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("C "):
                return
            if not line.strip() or line.startswith(("#", "\t\t")):
                continue
            number, _, name = line.strip().partition("  ")
            if not line.startswith("\t"):
                vendor = number.lower()
            elif vendor in vendors:
                yield (vendor, number.lower()), _friendly(name)


def _friendly(name: str) -> str:
    """`GH100 [H200 SXM 141GB]` names the chip first; people know what is in the brackets."""
    _, bracket, rest = name.partition("[")
    return rest.rstrip("] ") if bracket else name.strip()
