"""Quantities that users write into templates: the API server has not looked at them yet."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from gpu_control_plane.kube.quantities import parse_quantity

_MOST: Final = Decimal(2**63 - 1)
"""The largest quantity that the API server stores."""


def amount_of(quantity: int | str) -> Decimal | None:
    """The number that a quantity stands for, as the API server would keep it; None for what is none."""
    try:
        return max(-_MOST, min(_MOST, parse_quantity(str(quantity))))
    except ValueError:
        return None


def whole_units(quantity: int | str) -> int:
    """A quantity in whole units, rounded up; 0 for what is none."""
    return max(0, math.ceil(amount_of(quantity) or 0))


def pod_devices(spec: Mapping[str, Any]) -> dict[str, int]:
    """Units of each extended resource that a pod of this spec needs at once, as the scheduler counts them: those of its
    containers and sidecars, or those of an init container and the sidecars before it, whichever is more."""
    sidecars: dict[str, int] = defaultdict(int)
    most: dict[str, int] = defaultdict(int)
    for container in spec.get("initContainers") or ():
        for resource, units in _devices(container):
            most[resource] = max(most[resource], sidecars[resource] + units)
            if container.get("restartPolicy") == "Always":
                sidecars[resource] += units
    together = sidecars
    for container in spec.get("containers") or ():
        for resource, units in _devices(container):
            together[resource] += units
    asked = {resource: max(together[resource], most[resource]) for resource in sorted({*together, *most})}
    return {resource: units for resource, units in asked.items() if units}


def _devices(container: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for resource, quantity in ((container.get("resources") or {}).get("limits") or {}).items():
        if "/" in resource:
            yield resource, whole_units(quantity)
