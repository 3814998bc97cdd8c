"""Whether a pool may have a card. Pure."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from gpu_control_plane.api.deviceselector import DeviceCriteria, compute_capability
from gpu_control_plane.api.gpudevice import GPUDevice, Hardware
from gpu_control_plane.api.gpupool import GPUPool


def selects(pool: GPUPool, device: GPUDevice, node_labels: Mapping[str, str]) -> bool:
    """Whether the pool's selector takes this card of a node with these labels."""
    selector = pool.spec.device_selector
    hardware = device.status.hardware
    if hardware is None:
        return False
    if selector is None:
        return True
    if selector.node_selector is not None and not selector.node_selector.matches(node_labels):
        return False
    included = selector.include is None or all(_criteria(selector.include, device, hardware))
    excluded = selector.exclude is not None and any(_criteria(selector.exclude, device, hardware))
    return included and not excluded


def _criteria(criteria: DeviceCriteria, device: GPUDevice, hardware: Hardware) -> list[bool]:
    """The answers to the criteria that are given; one about a fact the card does not tell is answered with no."""
    answers: list[bool] = []
    if criteria.vendors:
        answers.append(hardware.vendor in criteria.vendors)
    if criteria.products:
        answers.append(any(_named(hardware.product, pattern) for pattern in criteria.products))
    if (memory := criteria.memory_mib) is not None:
        answers.append(_within(hardware.memory_mib, memory.min, memory.max))
    if (capability := criteria.compute_capability) is not None:
        known = compute_capability(hardware.compute_capability) if hardware.compute_capability else None
        lowest = compute_capability(capability.min) if capability.min else None
        highest = compute_capability(capability.max) if capability.max else None
        answers.append(_within(known, lowest, highest))
    if criteria.mig_capable is not None:
        answers.append((hardware.mig is not None and hardware.mig.capable) == criteria.mig_capable)
    if criteria.inventory_ids:
        answers.append(device.name in criteria.inventory_ids)
    return answers


def _named(product: str, pattern: str) -> bool:
    """Globs know `*` and `?` only, and upper and lower case are alike."""
    return fnmatchcase(product.lower(), pattern.lower().replace("[", "[[]"))


def _within[T: (int, tuple[int, int])](value: T | None, lowest: T | None, highest: T | None) -> bool:
    return value is not None and (lowest is None or value >= lowest) and (highest is None or value <= highest)
