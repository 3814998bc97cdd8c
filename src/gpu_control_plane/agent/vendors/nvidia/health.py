"""What NVIDIA's error codes, the XIDs, say about a card.

Only what NVIDIA's catalogue answers with a reset, a restart of the node or a repair takes a card out of service. A
code that the catalogue does not have is taken seriously.
"""

from collections.abc import Sequence
from typing import Final

from gpu_control_plane.agent.health import HealthRules, Verdict, double_bit

DOUBLE_BIT_ECC: Final = 48
FALLEN_OFF: Final = 79
CONTAINED_ECC: Final = 94
"""An uncorrected memory error that ended one program and harmed no other."""

APPLICATION_XIDS: Final = frozenset(
    {8, 11, 13, 25, 31, 32, *range(39, 42), 45, 60, *range(68, 73), *range(75, 78), 80, *range(82, 87), 88, 89}
    | {CONTAINED_ECC, *range(96, 106)}
)
"""A program went wrong, or followed another error into its end: restart the program."""
HARMLESS_XIDS: Final = frozenset({37, 38, 43, 44, 63, 66, 67, 92, 137, 154, 157})
"""Notices that ask for nothing."""
RESET_XIDS: Final = frozenset({46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158})
"""The card must be reset."""
NVLINK_XIDS: Final = frozenset({74, *range(144, 151)})
"""A link between cards is broken."""
NODE_XIDS: Final = frozenset({FALLEN_OFF, 151})
"""Only a restart of the node helps."""
MEMORY_XIDS: Final = frozenset({48, 63, 64, 92, CONTAINED_ECC, 95})
"""Memory errors, corrected at a high rate or not, and rows replaced because of them."""


class XIDRules(HealthRules):
    """The catalogue as the agent asks it."""

    def faults(self, codes: Sequence[int]) -> Sequence[Verdict]:
        return [_of_xid(code) for code in sorted(codes, key=_severity) if is_fault(code)]

    def name(self, code: int) -> str:
        return f"XID {code}"

    def is_memory_error(self, code: int) -> bool:
        return code in MEMORY_XIDS

    def is_of_program(self, code: int) -> bool:
        return code in APPLICATION_XIDS

    def is_contained(self, code: int) -> bool:
        return code == CONTAINED_ECC


RULES: Final = XIDRules()


def is_fault(code: int) -> bool:
    """Whether an XID speaks against the card itself."""
    return code not in APPLICATION_XIDS and code not in HARMLESS_XIDS


def _severity(code: int) -> int:
    """What asks for the most comes first."""
    return 0 if code in NODE_XIDS else 1 if code == DOUBLE_BIT_ECC else 2


def _of_xid(code: int) -> Verdict:
    if code == DOUBLE_BIT_ECC:
        return double_bit(f"XID {code}: an uncorrected memory error")
    reason = f"XID{code}"
    if code == FALLEN_OFF:
        return Verdict(False, reason, f"XID {code}: the card fell off the bus. Restart the node.")
    if code in NODE_XIDS:
        return Verdict(False, reason, f"XID {code}: the card needs a restart of the node.")
    if code in RESET_XIDS:
        return Verdict(False, reason, f"XID {code}: the card must be reset, then cleared.")
    if code in NVLINK_XIDS:
        return Verdict(False, reason, f"XID {code}: an NVLink of the card failed. Check the links, then clear it.")
    return Verdict(False, reason, f"XID {code} is not in NVIDIA's catalogue. Look it up, then clear the card.")
