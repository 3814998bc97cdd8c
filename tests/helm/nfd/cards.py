"""Real functions on PCI buses by their ids: cards that have to be recognised, and what must never count as one.

Ids and names are those of the PCI ID project's list of August 2026; classes are what such machines show. Some cards
can be switched between compute (0302) and graphics (0300): the A40, L40 and M60 stand here with both.
"""

from typing import Final

import msgspec

NVIDIA: Final = "10de"


class Function(msgspec.Struct, frozen=True):
    """One function of a device on the bus."""

    vendor: str
    device: str
    class_: str
    name: str


def _nvidia(device: str, class_: str, name: str) -> Function:
    return Function(NVIDIA, device, class_, name)


CARDS: Final = (
    _nvidia("102d", "0302", "Tesla K80"),
    _nvidia("13f2", "0302", "Tesla M60"),
    _nvidia("13f2", "0300", "Tesla M60"),
    _nvidia("15f8", "0302", "Tesla P100 PCIe 16GB"),
    _nvidia("15f9", "0302", "Tesla P100 SXM2 16GB"),
    _nvidia("1b38", "0302", "Tesla P40"),
    _nvidia("1bb3", "0302", "Tesla P4"),
    _nvidia("1db1", "0302", "Tesla V100 SXM2 16GB"),
    _nvidia("1db4", "0302", "Tesla V100 PCIe 16GB"),
    _nvidia("1db6", "0302", "Tesla V100 PCIe 32GB"),
    _nvidia("1df6", "0302", "Tesla V100S PCIe 32GB"),
    _nvidia("1e04", "0300", "GeForce RTX 2080 Ti"),
    _nvidia("1e30", "0300", "Quadro RTX 6000/8000"),
    _nvidia("1eb8", "0302", "Tesla T4"),
    _nvidia("20b0", "0302", "A100 SXM4 40GB"),
    _nvidia("20b2", "0302", "A100 SXM4 80GB"),
    _nvidia("20b5", "0302", "A100 PCIe 80GB"),
    _nvidia("20b7", "0302", "A30"),
    _nvidia("20f1", "0302", "A100 PCIe 40GB"),
    _nvidia("20f3", "0302", "A800 SXM4 80GB"),
    _nvidia("2204", "0300", "GeForce RTX 3090"),
    _nvidia("2230", "0300", "RTX A6000"),
    _nvidia("2235", "0302", "A40"),
    _nvidia("2235", "0300", "A40"),
    _nvidia("2236", "0302", "A10"),
    _nvidia("2237", "0302", "A10G"),
    _nvidia("2321", "0302", "H100 NVL"),
    _nvidia("2329", "0302", "H20"),
    _nvidia("2330", "0302", "H100 SXM5 80GB"),
    _nvidia("2331", "0302", "H100 PCIe"),
    _nvidia("2335", "0302", "H200"),
    _nvidia("233b", "0302", "H200 NVL"),
    _nvidia("2342", "0302", "GH200 120GB / 480GB"),
    _nvidia("2348", "0302", "GH200 144GB"),
    _nvidia("2487", "0300", "GeForce RTX 3060"),
    _nvidia("2503", "0300", "GeForce RTX 3060"),
    _nvidia("25b6", "0302", "A2 / A16"),
    _nvidia("2684", "0300", "GeForce RTX 4090"),
    _nvidia("26b1", "0300", "RTX 6000 Ada Generation"),
    _nvidia("26b5", "0302", "L40"),
    _nvidia("26b5", "0300", "L40"),
    _nvidia("26b9", "0302", "L40S"),
    _nvidia("26ba", "0302", "L20"),
    _nvidia("27b8", "0302", "L4"),
    _nvidia("2901", "0302", "B200"),
    _nvidia("2941", "0302", "GB200"),
    _nvidia("2b85", "0300", "GeForce RTX 5090"),
    _nvidia("2bb1", "0300", "RTX PRO 6000 Blackwell Workstation Edition"),
    _nvidia("2bb5", "0302", "RTX PRO 6000 Blackwell Server Edition"),
    _nvidia("2e12", "0300", "GB10"),
    _nvidia("3182", "0302", "B300"),
    _nvidia("31c2", "0302", "GB300"),
)

COMPANIONS: Final = (
    _nvidia("10f7", "0403", "TU102 High Definition Audio Controller"),
    _nvidia("1ad6", "0c03", "TU102 USB 3.1 Host Controller"),
    _nvidia("1ad7", "0c80", "TU102 USB Type-C UCSI Controller"),
    _nvidia("1aef", "0403", "GA102 High Definition Audio Controller"),
    _nvidia("22ba", "0403", "AD102 High Definition Audio Controller"),
    _nvidia("22e8", "0403", "GB202 High Definition Audio Controller"),
    _nvidia("1af1", "0680", "A100 NVSwitch"),
    _nvidia("22a3", "0680", "H100 NVSwitch"),
    _nvidia("22ce", "0604", "GB10 GEN5 X4 PCIe host"),
)
"""NVIDIA's, and next to many a card, but no cards."""

NETWORK: Final = _nvidia("0ab0", "0200", "MCP79 Ethernet")
"""An old network chip of NVIDIA's, on boards that may have no card."""

STRANGERS: Final = (
    Function("1a03", "2000", "0300", "ASPEED Graphics Family"),
    Function("102b", "0538", "0300", "Matrox MGA G200eH3"),
    Function("1002", "73bf", "0300", "AMD Radeon RX 6800"),
    Function("1002", "74a1", "1200", "AMD Instinct MI300X"),
    Function("8086", "4680", "0300", "Intel UHD Graphics 770"),
    Function("8086", "56c0", "0380", "Intel Data Center GPU Flex 170"),
    Function("15ad", "0405", "0300", "VMware SVGA II Adapter"),
    Function("1af4", "1050", "0380", "Virtio GPU"),
    Function("15b3", "1021", "0207", "Mellanox ConnectX-7"),
    Function("15b3", "a2dc", "0200", "Mellanox BlueField-3"),
)
"""Screens, network cards and accelerators of other vendors."""
