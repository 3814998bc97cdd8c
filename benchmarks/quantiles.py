"""Quantiles of what was measured, by the nearest rank: a value that really occurred."""

import math
from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]
