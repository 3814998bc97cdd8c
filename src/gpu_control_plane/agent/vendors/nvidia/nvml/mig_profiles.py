"""The names of MIG profiles. NVML reports sizes and numbers; nvidia-smi makes the names by this rule."""

import math
from typing import Final

_EIGHTHS: Final = 8
_MIB_PER_GIB: Final = 1024

_SUFFIXES: Final = {
    7: "+me",
    8: "+me",
    10: "+gfx",
    11: "+gfx",
    12: "+gfx",
    13: "-me",
    14: "-me",
    15: "+me.all",
    16: "+me.all",
    17: "+gfx",
}
"""What distinguishes a profile, by NVML's number of it."""


def profile_name(enum_index: int, slices: int, memory_mib: int, total_mib: int) -> str:
    """Such as `1g.18gb+me`: its part of the card in eighths, of the card's memory in whole GiB, rounded half up."""
    part = eighths(memory_mib, total_mib) / _EIGHTHS * math.ceil(total_mib / _MIB_PER_GIB)
    return f"{slices}g.{math.floor(part + 0.5)}gb{_SUFFIXES.get(enum_index, '')}"


def eighths(memory_mib: int, total_mib: int) -> int:
    """How many eighths of the card's memory these are, rounded up."""
    return math.ceil(_EIGHTHS * memory_mib / total_mib)
