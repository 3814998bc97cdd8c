"""What a card gives to a pool: the resources of an allocation on this hardware, with their units. Pure."""

import functools

from gpu_control_plane.api.allocation import MIG, Allocation, Mode, resource_suffix
from gpu_control_plane.api.gpudevice import Hardware, MIGCapability
from gpu_control_plane.api.gpunodestate import OfferedResource
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.rules.mig_layout import Misconfigured, PlacementTable, instance_counts


def card_resources(pool: GPUPool, allocation: Allocation, hardware: Hardware | None) -> tuple[OfferedResource, ...]:
    """The pool's resources that such a card is offered in; none where the hardware cannot be divided like that."""
    name = pool.resource_name
    match allocation.mode:
        case Mode.EXCLUSIVE:
            return (OfferedResource(name=name, units=1),)
        case Mode.TIME_SLICE if allocation.time_slice is not None:
            return (OfferedResource(name=name, units=allocation.time_slice.replicas),)
        case Mode.MIG if allocation.mig is not None and hardware is not None and hardware.mig is not None:
            counts = _instances(hardware.mig.placements or "", allocation.mig)
            mixed = bool(allocation.mig.layout)
            return tuple(
                OfferedResource(
                    name=f"{name}.{resource_suffix(profile)}" if mixed else name, units=count, profile=profile
                )
                for profile, count in counts
            )
        case _:
            return ()


def is_suitable(allocation: Allocation, hardware: Hardware | None) -> bool:
    """Whether a card with this hardware can be divided like that."""
    if allocation.mode is not Mode.MIG:
        return True
    mig = hardware.mig if hardware is not None else None
    return mig is not None and allocation.mig is not None and bool(_instances(mig.placements or "", allocation.mig))


@functools.lru_cache(256)
def _instances(placements: str, target: MIG) -> tuple[tuple[str, int], ...]:
    """How many instances of which profile the target comes to. All cards of a model say the same, so it is found
    once."""
    capability = MIGCapability(capable=bool(placements), enabled=False, placements=placements or None)
    try:
        return tuple(instance_counts(PlacementTable(capability), target).items())
    except Misconfigured:
        return ()
