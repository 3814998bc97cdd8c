"""What the kernel reports about the machine, with a driver or without: the cards on the PCI bus, boot id, model."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.api.gpudevice import PCI, Vendor
from gpu_control_plane.api.identity import canonical_pci_address

_ROOT: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


class PCIVendor(msgspec.Struct, frozen=True, kw_only=True):
    """How the cards of a vendor are recognised on the bus."""

    vendor: Vendor
    id: str
    """The vendor's number, such as `10de`."""
    classes: frozenset[str]
    """The classes of its cards: 0300 is VGA, 0302 3D, 0380 another display, 1200 a processing accelerator."""
    products: Mapping[str, str] = {}
    """Product names by device number, for hosts that have no list of PCI devices or an old one."""


class BusCard(msgspec.Struct, frozen=True):
    """A graphics card as the bus shows it."""

    vendor: Vendor
    pci: PCI
    numa_node: int | None
    root: str | None
    """The host bridge above it, such as `pci0000:16`."""


class Sysfs:
    """Reads /sys and /proc.

    SR-IOV makes virtual functions of a card, for VMs. On the host they are parts of a card, and the driver shows none
    of them. In a VM that has one there is no physical function behind it: there it is a card.
    """

    def __init__(self, sys: Path = Path("/sys"), proc: Path = Path("/proc")) -> None:
        self._buses = sys / "bus"
        self._devices = self._buses / "pci/devices"
        self._boot_id = proc / "sys/kernel/random/boot_id"

    def boot_id(self) -> str:
        """It changes with each start of the machine; empty if it cannot be read."""
        return _read(self._boot_id)

    def bus(self, vendors: Iterable[PCIVendor]) -> tuple[BusCard, ...] | None:
        """The cards of these vendors, in the order of their addresses. None if that is not known: /sys is not mounted,
        or may not be read. A kernel without PCI has an empty bus."""
        wanted = {vendor.id: vendor for vendor in vendors}
        try:
            found = [self._card(folder, wanted) for folder in sorted(self._devices.iterdir())]
        except PermissionError:
            return None
        except OSError:
            return () if self._buses.is_dir() else None
        return tuple(card for card in found if card is not None)

    def cards(self, vendors: Iterable[PCIVendor]) -> tuple[BusCard, ...]:
        """As `bus`, but no cards if the bus cannot be read."""
        return self.bus(vendors) or ()

    def card(self, address: str, vendors: Iterable[PCIVendor]) -> BusCard | None:
        """The card of one of these vendors at this address; None when there is none, or /sys does not show it."""
        try:
            return self._card(self._devices / address, {vendor.id: vendor for vendor in vendors})
        except PermissionError:
            return None

    def drm_files(self, address: str) -> tuple[str, ...]:
        """The names of its files under /dev/dri, such as `card0` and `renderD128`."""
        folder = self._devices / address / "drm"
        return tuple(sorted(entry.name for entry in folder.iterdir())) if folder.is_dir() else ()

    def _card(self, folder: Path, vendors: Mapping[str, PCIVendor]) -> BusCard | None:
        vendor, device = vendors.get(_hex(folder / "vendor")[-4:]), _hex(folder / "device")[-4:]
        class_ = _hex(folder / "class")[:4]
        # The files of a card that is being removed go one by one: a card without some of them is none.
        if vendor is None or class_ not in vendor.classes or not device or _is_virtual(folder):
            return None
        return BusCard(
            vendor=vendor.vendor,
            pci=PCI(vendor=vendor.id, device=device, class_=class_, address=canonical_pci_address(folder.name)),
            numa_node=_numa_node(_read(folder / "numa_node")),
            root=next((part for part in folder.resolve().parts if _ROOT.fullmatch(part)), None),
        )


def machine_model(root: Path = Path("/")) -> str:
    """The manufacturer's name of the machine, from DMI; `unknown` if the firmware has none."""
    return _read(root / "sys/class/dmi/id/product_name") or "unknown"


def _numa_node(text: str) -> int | None:
    """The kernel reports a negative number if it does not know."""
    return int(text) if text.isdigit() else None


def _is_virtual(folder: Path) -> bool:
    return (folder / "physfn").is_symlink()


def _hex(file: Path) -> str:
    """A number, or nothing if the card is being removed; raises PermissionError."""
    try:
        return file.read_text().strip().removeprefix("0x").lower()
    except PermissionError:
        raise
    except OSError:
        return ""


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
