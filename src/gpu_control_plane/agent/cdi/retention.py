"""Which devices stay in the file although nobody offers them any more: those that pods still hold.

With one exception. Device files are numbered, and numbers are given again: after a card has left and the driver was
loaded anew, `/dev/nvidia0` may be another card, and a capability file another MIG instance. A pod that restarted with
the old entry would then sit on somebody else's device, so such an entry goes, and the pod fails where it can be seen.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from gpu_control_plane.agent.cdi.spec import Device

_DISPLAY: Final = "/dev/dri/"
"""Device files that a card can be used without, if it has any others."""


class Kept(msgspec.Struct, frozen=True):
    """What becomes of the devices that are held and not wanted, each kind in the order of names."""

    retained: tuple[Device, ...]
    withdrawn: tuple[str, ...]
    """Their device files are those of a wanted device now."""
    unknown: tuple[str, ...]
    """Nobody remembers what they were."""


def retain(known: Mapping[str, Device], wanted: Collection[Device], held: Collection[str]) -> Kept:
    """Sort out what is held and not wanted; `known` is what the file had until now."""
    orphans = sorted(set(held) - {device.name for device in wanted})
    remembered = [known[name] for name in orphans if name in known]
    keys = [_keys(device) for device in wanted]
    retained = tuple(device for device in remembered if not any(key and key <= _keys(device) for key in keys))
    kept = {device.name for device in retained}
    return Kept(
        retained=retained,
        withdrawn=tuple(device.name for device in remembered if device.name not in kept),
        unknown=tuple(name for name in orphans if name not in known),
    )


def _keys(device: Device) -> frozenset[tuple[str, str, int, int]]:
    """What it takes to use a device: whoever has all of these can."""
    nodes = device.container_edits.device_nodes
    needed = [node for node in nodes if not node.path.startswith(_DISPLAY)] or nodes
    return frozenset((node.path, node.type, node.major, node.minor) for node in needed)
