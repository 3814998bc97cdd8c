"""How far a card is on its way to where a person sent it. Pure: the card in, a stage and a sentence out."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from gpu_control_plane.actions.forecast import holders
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.pools.snapshot import claim_of


class Stage(StrEnum):
    """The stages of a card's way, in their order."""

    ORDERED = "Ordered"
    """Written; the controller has not acted on it yet."""
    DRAINING = "Draining"
    """No new pod gets it; it waits for those that have it."""
    WAITING = "Waiting"
    """It is free, and waits for something before it joins its pool."""
    DONE = "Done"


class CardProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a card stands."""

    card: str
    stage: Stage
    sentence: str
    held_by: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        return self.stage is Stage.DONE


def assignment_progress(card: GPUDevice) -> CardProgress:
    """On the way into the pool that it is approved for, or out of every pool."""
    wanted, claim = card.metadata.annotations.get(Annotation.ASSIGNMENT) or None, claim_of(card)
    if claim == wanted:
        return _at(card, Stage.DONE, f"in the pool {wanted}" if wanted else "in no pool")
    if claim is not None:
        return _leaving(card, claim)
    reason = card.status.pending_reason
    because = PendingReason(reason).because if reason and reason != PendingReason.APPROVAL else "about to join"
    return _at(card, Stage.WAITING, f"free; for {wanted} it waits: {because}")


def retirement_progress(card: GPUDevice) -> CardProgress:
    """On the way out of service, to where it may be pulled."""
    claim = claim_of(card)
    if claim is not None:
        return _leaving(card, claim)
    if not card.ignored or card.status.pending_reason != PendingReason.IGNORED or card.status.used_by:
        return _at(card, Stage.ORDERED, "the controller has not confirmed yet that it is out of service")
    return _at(card, Stage.DONE, "safe to pull: in no pool, held by no pod, offered to none")


def _leaving(card: GPUDevice, claim: str) -> CardProgress:
    held = holders(card)
    waits = f"waits for {named(held)}" if held else "no pod has it, the node takes it back"
    return _at(card, Stage.DRAINING, f"leaves {claim}: {waits}")


def named(names: Sequence[str], most: int = 5) -> str:
    """Some names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _at(card: GPUDevice, stage: Stage, sentence: str) -> CardProgress:
    return CardProgress(card=card.name, stage=stage, sentence=sentence, held_by=holders(card))
