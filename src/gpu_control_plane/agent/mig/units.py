"""MIG instances as the kubelet knows them.

A unit is named by its card and its place, not by the UUID of the instance: that one changes whenever the instance is
created anew, as after every reboot, and the kubelet would lose track of the pods that hold it.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from gpu_control_plane.agent.units import REPLICA, Unit
from gpu_control_plane.api.allocation import Mode, canonical_profile
from gpu_control_plane.api.gpunodestate import Assignment
from gpu_control_plane.rules.mig_layout import Slot

LONGEST_ID: Final = 63
"""What the device plugin API promises to carry."""

_UNIT_ID: Final = re.compile(rf"(?P<card>.+?){REPLICA}(?P<profile>[^@:]+)@(?P<start>\d+)")


class UnitName(msgspec.Struct, frozen=True):
    """What the name of a unit says."""

    card: str
    """UUID of the card."""
    profile: str
    start: int


def unit_id(card_uuid: str, profile: str, start: int) -> str:
    """`GPU-…::1g.18gb@0`: the instance of this profile at this memory slice of this card."""
    name = f"{card_uuid}{REPLICA}{profile}@{start}"
    if len(name) > LONGEST_ID:
        raise ValueError(f"{name} is {len(name)} characters long; the kubelet takes {LONGEST_ID}.")
    return name


def parse_unit_id(name: str) -> UnitName | None:
    """The opposite; None for units of other kinds."""
    found = _UNIT_ID.fullmatch(name)
    return UnitName(found["card"], found["profile"], int(found["start"])) if found else None


def slot_of(unit: Unit) -> Slot | None:
    """The place of a MIG unit on its card; None for units of other kinds."""
    instance = parse_unit_id(unit.id)
    if instance is None or unit.slices is None:
        return None
    return Slot(unit.slices[0], unit.slices[1] - unit.slices[0], instance.profile)


def resource_names(order: Assignment) -> dict[str, str]:
    """In which resource the instances of each profile are offered. A single profile needs no naming in the order."""
    named = {canonical_profile(offered.profile): offered.name for offered in order.resources if offered.profile}
    target = order.allocation.mig
    if not named and target and target.profile:
        return {canonical_profile(target.profile): order.resources[0].name}
    return named


def units(order: Assignment, card_uuid: str, slots: Iterable[Slot]) -> tuple[Unit, ...]:
    """The units that these places of a card make under this order; a profile it does not offer makes none."""
    names = resource_names(order)
    return tuple(
        Unit(
            resource=names[slot.profile],
            id=unit_id(card_uuid, slot.profile, slot.start),
            card=order.inventory_id,
            mode=Mode.MIG,
            slices=(slot.start, slot.start + slot.size),
        )
        for slot in sorted(slots)
        if slot.profile in names
    )
