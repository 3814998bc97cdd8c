"""Finds the vendors that the agent supports, and chooses between them by what the PCI bus shows.

A node is served with the driver of one vendor: the one with the most cards on its bus. Nothing of a vendor's driver is
imported before its cards are there, or nothing can be said about the bus.
"""

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from gpu_control_plane.agent import vendors
from gpu_control_plane.agent.backends.interface import Backend, DriverUnavailable
from gpu_control_plane.agent.backends.pci import PCIBackend
from gpu_control_plane.agent.backends.sysfs import PCIVendor, Sysfs
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.vendors.interface import VendorSupport
from gpu_control_plane.api.gpudevice import Hardware, Vendor


def supported() -> Mapping[Vendor, VendorSupport]:
    """Every vendor with a folder, in the order of the folders' names."""
    return _found(tuple(vendors.__path__))


def support_of(vendor: Vendor) -> VendorSupport:
    return supported()[vendor]


def supports_of(cards: Iterable[Hardware]) -> Sequence[VendorSupport]:
    """The vendors of these cards; all of them where there is no card."""
    present = {card.vendor for card in cards}
    return [support for vendor, support in supported().items() if vendor in present] or [*supported().values()]


def pci_vendors() -> tuple[PCIVendor, ...]:
    """What to look for on the PCI bus."""
    return tuple(support.pci for support in supported().values())


def on_bus(sysfs: Sysfs) -> Sequence[VendorSupport]:
    """The vendors whose cards the bus shows, that with the most cards first; all of them where it shows none.

    An empty bus proves nothing: a sandbox may hide it while the driver answers.
    """
    counts = Counter(card.vendor for card in sysfs.cards(pci_vendors()))
    shown = [support for vendor, support in supported().items() if counts[vendor]]
    return sorted(shown, key=lambda support: -counts[support.vendor]) or [*supported().values()]


def open_backend(search: DriverSearch, sysfs: Sysfs | None = None) -> Backend:
    """An open backend: a driver's where one answers, else what the bus shows, with the reason. The caller closes it."""
    sysfs = sysfs or Sysfs()
    candidates = on_bus(sysfs)
    reason = ""
    for support in candidates:
        try:
            return support.open_backend(search, sysfs)
        except DriverUnavailable as error:
            reason = reason or str(error)
    return PCIBackend([support.pci for support in candidates], reason, sysfs=sysfs)


def container_driver_roots() -> tuple[Path, ...]:
    """Where the driver containers of all vendors put their file systems."""
    return tuple(root for support in supported().values() for root in support.container_driver_roots)


@cache
def _found(folders: tuple[str, ...]) -> Mapping[Vendor, VendorSupport]:
    names = sorted(module.name for module in pkgutil.iter_modules(folders) if module.ispkg)
    found = [importlib.import_module(f"{vendors.__name__}.{name}.support").SUPPORT for name in names]
    return {support.vendor: support for support in found}
