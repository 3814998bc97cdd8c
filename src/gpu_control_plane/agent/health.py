"""Whether a card works: its signals in, a verdict with a reason and advice out.

Errors that a program caused are never held against the card: only what NVIDIA's catalogue answers with a reset, a
restart of the node or a repair takes a card out of service. A code that nobody knows is taken seriously. This is the
judgement of one moment; `recovery` adds memory to it.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import Recovery, Signals

DOUBLE_BIT_ECC: Final = 48
FALLEN_OFF: Final = 79
CONTAINED_ECC: Final = 94
"""An uncorrected memory error that cost one program its life and nobody else anything."""

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

HOT_CELSIUS: Final = 95
"""From this temperature on a card is too hot, even if it does not slow itself down."""
COOL_CELSIUS: Final = 80
"""To this temperature a card that was too hot has to cool down."""

_RECOVERIES: Final = {
    Recovery.RESET: ("ResetRequired", "The driver asks for a reset of the card."),
    Recovery.REBOOT: ("RebootRequired", "The driver asks for a restart of the node."),
    Recovery.DRAIN_P2P: (
        "DrainRequired",
        "The driver asks to end the programs that use this card together with others.",
    ),
    Recovery.DRAIN_AND_RESET: ("ResetRequired", "The driver asks to end all programs on the card, then to reset it."),
    Recovery.RECOVER_IMEX: ("RecoverIMEX", "The driver asks to restart the IMEX service of the node's NVLink domain."),
}


class Verdict(msgspec.Struct, frozen=True):
    """Whether a card may be handed out, with the reason of its condition and a sentence that says what to do."""

    healthy: bool
    reason: str
    message: str


WORKS: Final = Verdict(True, "ProbePassed", "The card answers and shows no fault.")
CONTAINED: Final = Verdict(
    True,
    "MemoryErrorContained",
    "A memory error ended one program and harmed no other. Reset the card once it is free.",
)
REMAP_PENDING: Final = Verdict(
    True, "RowRemapPending", "A bad row of memory is replaced at the next reset. Reset the card once it is free."
)
OVERHEATED: Final = Verdict(False, "Overheated", "The card slows itself down because it is too hot. Check its cooling.")


def verdict(signals: Signals) -> Verdict:
    """The worst that the signals say."""
    return next(_complaints(signals), WORKS)


def _complaints(signals: Signals) -> Iterator[Verdict]:
    """Everything that speaks against the card, the worst first; the last ones are advice and leave it in service."""
    if signals.lost:
        yield Verdict(False, "LostFromBus", "The card no longer answers on the PCI bus. Restart the node; reseat it.")
    if signals.remap_failed:
        yield Verdict(False, "RowRemapFailed", "A bad row of memory could not be replaced. Replace the card.")
    yield from (_of_xid(code) for code in sorted(signals.xids, key=_severity) if faults(code))
    contained = CONTAINED_ECC in signals.xids
    if signals.uncorrected_ecc and not contained:
        yield _double_bit(f"{signals.uncorrected_ecc} uncorrected memory errors")
    if signals.recovery is not Recovery.NONE:
        yield Verdict(False, *_RECOVERIES[signals.recovery])
    if signals.overheated:
        yield OVERHEATED
    if signals.remap_pending:
        yield REMAP_PENDING
    if signals.uncorrected_ecc and contained:
        yield CONTAINED


def faults(code: int) -> bool:
    """Whether an XID speaks against the card itself."""
    return code not in APPLICATION_XIDS and code not in HARMLESS_XIDS


def unseen(known: tuple[int, ...], reports: tuple[int, ...]) -> tuple[int, ...]:
    """The reports that came after the known ones; a card keeps only its latest, and none once it was cleared."""
    for shared in range(min(len(known), len(reports)), 0, -1):
        if known[-shared:] == reports[:shared]:
            return reports[shared:]
    return reports


def _severity(code: int) -> int:
    """What asks for the most comes first."""
    return 0 if code in NODE_XIDS else 1 if code == DOUBLE_BIT_ECC else 2


def _of_xid(code: int) -> Verdict:
    if code == DOUBLE_BIT_ECC:
        return _double_bit(f"XID {code}: an uncorrected memory error")
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


def _double_bit(what: str) -> Verdict:
    return Verdict(False, "DoubleBitECC", f"{what}. Reset the card; replace it if the errors come back.")
