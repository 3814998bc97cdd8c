"""Quantities that users write into templates: the API server has not looked at them yet."""

import math
from decimal import Decimal
from typing import Final

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
