"""Which cards a kernel may run on, and why not on the others: a card in use is not disturbed."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import Instance
from gpu_control_plane.api.gpudevice import Hardware

_IN_USE: Final = "in use"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A card, and whether a kernel may run on it."""

    address: str
    device: str
    """The UUID of the card, or of one of its MIG instances."""
    obstacle: str | None = None
    """Why the card is not tested; None if it is free. Always the same words for the same reason: they are part of the
    status, which is written when it changes."""


def targets(
    cards: Sequence[Hardware],
    instances: Mapping[str, Sequence[Instance]],
    in_use: Collection[str],
    faulted: Collection[str],
) -> tuple[Target, ...]:
    """One for each card. `in_use` are the addresses of cards, and the UUIDs of instances, that pods or programs use."""
    return tuple(_target(card, instances.get(card.pci.address, ()), in_use, faulted) for card in cards)


def _target(card: Hardware, instances: Sequence[Instance], in_use: Collection[str], faulted: Collection[str]) -> Target:
    address = card.pci.address
    device = card.uuid or address
    obstacle = None
    if address in faulted:
        obstacle = "faulted"
    elif card.mig is not None and card.mig.enabled:
        free = [instance.uuid for instance in instances if instance.uuid not in in_use]
        device = free[0] if free else device
        obstacle = None if free else _IN_USE if instances else "without a MIG instance"
    elif address in in_use:
        obstacle = _IN_USE
    return Target(address=address, device=device, obstacle=obstacle)
