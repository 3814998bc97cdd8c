"""The models of card that can be simulated, with the facts a driver reports about each.

The H200's are readings of a real card; the others follow the vendor's tables.
"""

from typing import Final

import msgspec

from gpu_control_plane.api.gpudevice import MIGCapability, MIGProfile, Vendor

VENDOR: Final = Vendor.NVIDIA
"""Whose cards these are."""
MOST_CARDS: Final = 16

_BUSES: Final = (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)
_SOCKETS: Final = 2

# Cards of seven slices differ in names and memory alone: shape, most instances, memory slices, where they may start.
_SEVEN_SLICES: Final = (
    (7, 1, (0, 1, 2, 3, 4, 5, 6)),
    (1, 1, (0, 1, 2, 3, 4, 5, 6)),
    (4, 2, (0, 2, 4, 6)),
    (3, 2, (0, 2, 4)),
    (2, 4, (0, 4)),
    (1, 4, (0,)),
    (1, 8, (0,)),
)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a card measures under one kind of load."""

    temperature: int
    power: int
    utilisation: int
    memory_used: int


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One model of card, in the machine it is usually built into."""

    product: str
    pci_device: str
    pci_class: str
    memory_mib: int
    compute_capability: str
    architecture: str
    nvlink: bool
    mig: MIGCapability | None
    idle: Load
    busy: Load


def pci_address(index: int) -> str:
    """Where card `index` sits in an eight-card machine; further cards follow in domains of their own."""
    domain, place = divmod(index, len(_BUSES))
    return f"{domain:04x}:{_BUSES[place]:02x}:00.0"


def numa_node(index: int) -> int:
    """The first half of the eight cards hangs on one processor, the second half on the other."""
    return index % len(_BUSES) * _SOCKETS // len(_BUSES)


def _mig(*instances: tuple[str, int]) -> MIGCapability:
    """A card that can be cut and is not, from the names and memory sizes of its instances."""
    profiles = (
        MIGProfile(name=name, count=count, memory_mib=memory, slices=slices, starts=starts)
        for (name, memory), (count, slices, starts) in zip(instances, _SEVEN_SLICES, strict=True)
    )
    return MIGCapability.of(profiles, enabled=False)


PROFILES: Final[dict[str, Profile]] = {
    "A100-80": Profile(
        product="NVIDIA A100-SXM4-80GB",
        pci_device="20b2",
        pci_class="0302",
        memory_mib=81920,
        compute_capability="8.0",
        architecture="Ampere",
        nvlink=True,
        mig=_mig(
            ("1g.10gb", 9728),
            ("1g.10gb+me", 9728),
            ("1g.20gb", 19968),
            ("2g.20gb", 19968),
            ("3g.40gb", 40192),
            ("4g.40gb", 40192),
            ("7g.80gb", 80384),
        ),
        idle=Load(temperature=30, power=62, utilisation=0, memory_used=0),
        busy=Load(temperature=61, power=380, utilisation=97, memory_used=70_000),
    ),
    "H100-80": Profile(
        product="NVIDIA H100 80GB HBM3",
        pci_device="2330",
        pci_class="0302",
        memory_mib=81559,
        compute_capability="9.0",
        architecture="Hopper",
        nvlink=True,
        mig=_mig(
            ("1g.10gb", 9984),
            ("1g.10gb+me", 9984),
            ("1g.20gb", 20096),
            ("2g.20gb", 20096),
            ("3g.40gb", 40448),
            ("4g.40gb", 40448),
            ("7g.80gb", 81152),
        ),
        idle=Load(temperature=30, power=71, utilisation=0, memory_used=0),
        busy=Load(temperature=63, power=660, utilisation=97, memory_used=70_000),
    ),
    "H200-141": Profile(
        product="NVIDIA H200",
        pci_device="2335",
        pci_class="0302",
        memory_mib=143771,
        compute_capability="9.0",
        architecture="Hopper",
        nvlink=True,
        mig=_mig(
            ("1g.18gb", 16384),
            ("1g.18gb+me", 16384),
            ("1g.35gb", 33280),
            ("2g.35gb", 33280),
            ("3g.71gb", 71424),
            ("4g.71gb", 71424),
            ("7g.141gb", 143360),
        ),
        idle=Load(temperature=31, power=76, utilisation=0, memory_used=0),
        busy=Load(temperature=64, power=670, utilisation=97, memory_used=120_000),
    ),
    "L40S": Profile(
        product="NVIDIA L40S",
        pci_device="26b9",
        pci_class="0302",
        memory_mib=46068,
        compute_capability="8.9",
        architecture="Ada Lovelace",
        nvlink=False,
        mig=None,
        idle=Load(temperature=29, power=33, utilisation=0, memory_used=0),
        busy=Load(temperature=66, power=330, utilisation=96, memory_used=40_000),
    ),
    "RTX-3060": Profile(
        product="NVIDIA GeForce RTX 3060",
        pci_device="2503",
        pci_class="0300",
        memory_mib=12288,
        compute_capability="8.6",
        architecture="Ampere",
        nvlink=False,
        mig=None,
        idle=Load(temperature=35, power=14, utilisation=0, memory_used=0),
        busy=Load(temperature=68, power=165, utilisation=95, memory_used=10_000),
    ),
}
