"""What cards are called when no driver tells: by the host's own list of PCI devices, else by a few we know."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from gpu_control_plane.api.gpudevice import PCI, Vendor

LISTS: Final = (Path("/usr/share/misc/pci.ids"), Path("/usr/share/hwdata/pci.ids"))

_KNOWN: Final = {
    "102d": "Tesla K80",
    "13f2": "Tesla M60",
    "15f8": "Tesla P100 PCIe 16GB",
    "15f9": "Tesla P100 SXM2 16GB",
    "1b38": "Tesla P40",
    "1bb3": "Tesla P4",
    "1db1": "Tesla V100 SXM2 16GB",
    "1db4": "Tesla V100 PCIe 16GB",
    "1db6": "Tesla V100 PCIe 32GB",
    "1df6": "Tesla V100S PCIe 32GB",
    "1e04": "GeForce RTX 2080 Ti",
    "1e30": "Quadro RTX 6000/8000",
    "1eb8": "Tesla T4",
    "20b0": "A100 SXM4 40GB",
    "20b2": "A100 SXM4 80GB",
    "20b5": "A100 PCIe 80GB",
    "20b7": "A30",
    "20f1": "A100 PCIe 40GB",
    "20f3": "A800 SXM4 80GB",
    "2204": "GeForce RTX 3090",
    "2230": "RTX A6000",
    "2235": "A40",
    "2236": "A10",
    "2237": "A10G",
    "2321": "H100 NVL",
    "2329": "H20",
    "2330": "H100 SXM5 80GB",
    "2331": "H100 PCIe",
    "2335": "H200",
    "233b": "H200 NVL",
    "2342": "GH200 120GB / 480GB",
    "2348": "GH200 144GB",
    "2487": "GeForce RTX 3060",
    "2503": "GeForce RTX 3060",
    "25b6": "A2 / A16",
    "2684": "GeForce RTX 4090",
    "26b1": "RTX 6000 Ada Generation",
    "26b5": "L40",
    "26b9": "L40S",
    "26ba": "L20",
    "27b8": "L4",
    "2901": "B200",
    "2941": "GB200",
    "2b85": "GeForce RTX 5090",
    "2bb1": "RTX PRO 6000 Blackwell Workstation Edition",
    "2bb5": "RTX PRO 6000 Blackwell Server Edition",
    "2e12": "GB10",
    "3182": "B300",
    "31c2": "GB300",
}
"""NVIDIA's cards that are met in clusters by device id, for hosts that have no list or an old one."""


class ProductNames:
    """Reads the first list there is, once, and only when a name is asked for."""

    def __init__(self, lists: Sequence[Path] = LISTS) -> None:
        self._lists = lists
        self._names: dict[tuple[str, str], str] | None = None

    def of(self, vendor: Vendor, pci: PCI) -> str:
        """Such as `NVIDIA H200`, or `NVIDIA device 2335` when nobody knows it."""
        if self._names is None:
            present = next((file for file in self._lists if file.is_file()), None)
            self._names = {} if present is None else dict(_entries(present))
        listed = self._names.get((pci.vendor, pci.device))
        known = _KNOWN.get(pci.device) if vendor is Vendor.NVIDIA else None
        return f"{vendor} {listed or known or f'device {pci.device}'}"[:128]


def _entries(file: Path) -> Iterator[tuple[tuple[str, str], str]]:
    """Vendors stand at the margin, their devices one tab in; classes, at the end of the file, begin with a C."""
    vendor = ""
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("C "):
                return
            if not line.strip() or line.startswith(("#", "\t\t")):
                continue
            number, _, name = line.strip().partition("  ")
            if line.startswith("\t"):
                yield (vendor, number.lower()), _friendly(name)
            else:
                vendor = number.lower()


def _friendly(name: str) -> str:
    """`GH100 [H200 SXM 141GB]` names the chip first; people know what is in the brackets."""
    _, bracket, rest = name.partition("[")
    return rest.rstrip("] ") if bracket else name.strip()
