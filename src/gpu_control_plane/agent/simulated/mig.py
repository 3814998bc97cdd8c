"""MIG on simulated cards, by the rules of a real driver: the state of a card in, its next state or a refusal out."""

from collections.abc import Sequence
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import BackendError, InUse, NoRoom, NotSupported
from gpu_control_plane.agent.simulated.state import CardState, InstanceRecord
from gpu_control_plane.api.gpudevice import Hardware, MIGProfile

_MEDIA: Final = "+me"


def with_mig_mode(state: CardState, card: Hardware, *, enabled: bool, in_use: bool) -> CardState:
    """The card with MIG on or off."""
    address = _capable(card)
    if state.enabled is enabled:
        return state
    if state.instances:
        raise InUse(f"The card at {address} still has {len(state.instances)} MIG instances. Destroy them first.")
    if in_use:
        raise InUse(f"A program still uses the card at {address}: its MIG mode cannot change.")
    return msgspec.structs.replace(state, enabled=enabled)


def with_instance(state: CardState, card: Hardware, name: str, start: int) -> tuple[CardState, InstanceRecord]:
    """The card with one more instance, and that instance. Its number is its own: no other ever gets it."""
    address = _capable(card)
    if not state.enabled:
        raise NotSupported(f"MIG is off on the card at {address}. Switch it on first.")
    profile = _profile(card, name)
    _check_place(state.instances, profile, start, address)
    number = state.created + 1
    record = InstanceRecord(name, start, profile.slices, number, _free_number(state.instances))
    instances = tuple(sorted((*state.instances, record), key=lambda each: each.start))
    return msgspec.structs.replace(state, created=number, instances=instances), record


def without_instance(
    state: CardState, card: Hardware, uuid: str, record: InstanceRecord | None, *, in_use: bool
) -> CardState:
    """The card without this instance."""
    address = _capable(card)
    if record is None:
        raise BackendError(f"The card at {address} has no MIG instance {uuid}.")
    if in_use:
        raise InUse(f"A program still runs on the MIG instance {uuid}.")
    left = tuple(each for each in state.instances if each != record)
    return msgspec.structs.replace(state, instances=left)


def _capable(card: Hardware) -> str:
    if card.mig is None or not card.mig.capable:
        raise NotSupported(f"The {card.product} at {card.pci.address} cannot be partitioned into MIG instances.")
    return card.pci.address


def _profile(card: Hardware, name: str) -> MIGProfile:
    for profile in card.mig.profiles if card.mig else ():
        if profile.name == name:
            return profile
    raise NotSupported(f"The {card.product} at {card.pci.address} has no MIG profile {name}.")


def _check_place(instances: Sequence[InstanceRecord], profile: MIGProfile, start: int, address: str) -> None:
    name = profile.name
    if start not in profile.starts:
        raise NoRoom(f"An instance {name} cannot start at slice {start}, only at one of {profile.starts}.")
    for each in instances:
        if each.start < start + profile.slices and start < each.start + each.size:
            raise NoRoom(f"On the card at {address} slice {max(start, each.start)} belongs to {each.profile} already.")
    if sum(each.profile == name for each in instances) >= profile.count:
        raise NoRoom(f"The card at {address} has {profile.count} instances {name}, and no more are possible.")
    if name.endswith(_MEDIA) and any(each.profile.endswith(_MEDIA) for each in instances):
        raise NoRoom(f"On the card at {address} the media engines belong to another instance already.")


def _free_number(instances: Sequence[InstanceRecord]) -> int:
    taken = {each.gpu_instance for each in instances}
    return next(number for number in range(1, len(taken) + 2) if number not in taken)
