"""NVIDIA's cards on the PCI bus."""

from typing import Final

from gpu_control_plane.agent.backends.sysfs import PCIVendor
from gpu_control_plane.api.gpudevice import Vendor

_PRODUCTS: Final = {
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
"""Those that are met in clusters, by device number."""

PCI_VENDOR: Final = PCIVendor(vendor=Vendor.NVIDIA, id="10de", classes=frozenset({"0300", "0302"}), products=_PRODUCTS)
