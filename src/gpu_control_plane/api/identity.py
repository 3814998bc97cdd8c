"""What a card is called.

A card is known by its place, node and PCI address, never by an index: pulling one card must not rename the others.
"""

import hashlib
import re
from typing import Final, NewType

InventoryID = NewType("InventoryID", str)

MAX_NAME: Final = 253
_DIGEST: Final = 12
_ADDRESS: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])")


def inventory_id(node: str, pci_address: str) -> InventoryID:
    """The name of the GPUDevice at this place: `worker-3` and `0000:65:00.0` give `worker-3-0000-65-00-0`.

    Always a valid object name. The last four words are the address, so two places never share a name; where the
    node's name leaves no room it is cut and a digest of the whole of it keeps nodes apart.
    """
    address = re.sub("[:.]", "-", canonical_pci_address(pci_address))
    room = MAX_NAME - len(address) - 1
    if len(node) > room:
        digest = hashlib.sha256(node.encode()).hexdigest()[:_DIGEST]
        node = f"{node[: room - _DIGEST - 1].rstrip('-.')}-{digest}"
    return InventoryID(f"{node}-{address}")


def canonical_pci_address(text: str) -> str:
    """The address as Linux writes it: lower case, and a domain of four digits unless it needs more (NVML has eight)."""
    match = _ADDRESS.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is no PCI address: one looks like 0000:65:00.0")
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}"
