"""Whether a card is healthy: the signals of a probe in, a verdict with a reason and advice out.

Errors that a program caused are never held against the card. What an error code of a driver means, its vendor knows
(`HealthRules`); everything else that a card reports means the same on every card, and is weighed here. This looks at
one probe alone; `recovery` adds memory to it.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from gpu_control_plane.agent.backends.interface import Recovery, Signals
from gpu_control_plane.kube.sentences import counted

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
    """Whether a card is healthy, with the reason and the message of its Healthy condition."""

    healthy: bool
    reason: str
    message: str


class HealthRules(Protocol):
    """What the error codes of one vendor's driver mean."""

    def faults(self, codes: Sequence[int]) -> Sequence[Verdict]:
        """What these codes say against the card, the worst first; codes that a program caused say nothing.

        A code that the vendor does not know is taken seriously.
        """

    def name(self, code: int) -> str:
        """What people call the code, such as `XID 79`."""

    def is_memory_error(self, code: int) -> bool:
        """Whether the code reports an error of the card's memory, also one that does not take it out of service."""

    def is_of_program(self, code: int) -> bool:
        """Whether a program caused the code, and its owner has to look."""

    def is_contained(self, code: int) -> bool:
        """Whether the code reports an uncorrected memory error that ended one program and harmed no other."""


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


def verdict(signals: Signals, rules: HealthRules, *, contained: bool = False) -> Verdict:
    """The worst that the signals say. `contained`: all of the card's memory errors are known to have been contained."""
    contained = contained or any(map(rules.is_contained, signals.xids))
    return next(_verdicts(signals, rules, contained=contained), WORKS)


def unseen(known: tuple[int, ...], reports: tuple[int, ...]) -> tuple[int, ...]:
    """The codes that came after the known ones; a card keeps only its latest, and none once it was cleared."""
    for shared in range(min(len(known), len(reports)), 0, -1):
        if known[-shared:] == reports[:shared]:
            return reports[shared:]
    return reports


def double_bit(what: str) -> Verdict:
    """The verdict on uncorrected memory errors."""
    return Verdict(False, "DoubleBitECC", f"{what}. Reset the card; replace it if the errors come back.")


def _verdicts(signals: Signals, rules: HealthRules, *, contained: bool) -> Iterator[Verdict]:
    """Everything that is wrong with the card, the worst first; the last ones are advice and leave it in service."""
    if signals.lost:
        yield Verdict(False, "LostFromBus", "The card no longer answers on the PCI bus. Restart the node; reseat it.")
    if signals.remap_failed:
        yield Verdict(False, "RowRemapFailed", "A bad row of memory could not be replaced. Replace the card.")
    yield from rules.faults(signals.xids)
    if signals.uncorrected_ecc and not contained:
        yield double_bit(counted(signals.uncorrected_ecc, "uncorrected memory error"))
    if signals.recovery is not Recovery.NONE:
        yield Verdict(False, *_RECOVERIES[signals.recovery])
    if signals.overheated:
        yield OVERHEATED
    if signals.remap_pending:
        yield REMAP_PENDING
    if signals.uncorrected_ecc and contained:
        yield CONTAINED
