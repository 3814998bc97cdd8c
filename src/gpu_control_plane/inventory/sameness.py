"""Whether the card at an address is still the card that was there, and what is known of it then.

The UUID is the card's own name, but only a working driver can read it. While it cannot be read, the ids on the PCI
bus speak: another model is surely another card, the same model is taken for the same card until a UUID says otherwise.
"""

import msgspec

from gpu_control_plane.api.gpudevice import Hardware


def is_another_card(known: Hardware | None, seen: Hardware) -> bool:
    """Whether `seen` is proof that the card known at this address has been exchanged."""
    if known is None:
        return False
    if known.uuid is not None and seen.uuid is not None:
        return known.uuid != seen.uuid
    return (known.pci.vendor, known.pci.device) != (seen.pci.vendor, seen.pci.device)


def what_is_known(known: Hardware | None, seen: Hardware) -> Hardware:
    """What is known of a card after it was seen again.

    A card seen without its driver keeps what its driver had told: forgetting the UUID would hide a later exchange,
    and forgetting the memory would take the card out of pools that select by it.
    """
    if known is None or known.uuid is None or seen.uuid is not None:
        return seen
    return msgspec.structs.replace(known, pci=seen.pci)
