"""What is said of a card's burn-in, and whether one is due. Pure.

What is known of a card is in its own status, with the UUID it is about: so an agent that starts knows who has passed,
and another card in the same place is a new one.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from gpu_control_plane.agent.views import DeviceView
from gpu_control_plane.api.gpudevice import BurnIn
from gpu_control_plane.api.names import Annotation, DeviceCondition, Reason
from gpu_control_plane.kube.conditions import FALSE, TRUE, condition, find
from gpu_control_plane.kube.objects import Condition


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What the condition BurnedIn should say, and about which card."""

    status: bool | None
    """None while it is not known."""
    reason: str
    message: str
    record: BurnIn
    due: bool = False
    """Nothing is in the way: the test should begin."""

    @property
    def trusted(self) -> bool:
        """Whether the card may be handed out."""
        return self.status is True

    def says(self, held: Iterable[Condition], now: datetime) -> Condition:
        """The condition to write. Its transition time is that of `held` while the status stays."""
        return condition(held, DeviceCondition.BURNED_IN, self.status, self.reason, self.message, now=now)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the decision about one card depends on."""

    uuid: str | None
    """The card that is there; None where only the bus shows it."""
    known: Standing | None = None
    """What was said about the card with this UUID; without one, about the place."""
    in_pool: bool = False
    """The card with this UUID is in a pool."""
    running: str | None = None
    """What to say while its test runs; None while none does."""
    obstacle: str | None = None
    """Why a test cannot begin now, in a sentence; None when it can."""


def decide(facts: Facts, *, enabled: bool) -> Standing | None:
    """The questions in their order; None says nothing at all."""
    known = facts.known
    if facts.uuid is None or (known is not None and known.trusted):
        return known
    if not enabled:
        return None
    if known is None and facts.in_pool:
        message = "The card was in a pool before burn-in was switched on; it was left alone."
        return Standing(status=True, reason=Reason.IN_SERVICE, message=message, record=BurnIn(uuid=facts.uuid))
    if known is not None and known.status is False:
        return known
    return _open(facts.uuid, facts)


def begun(uuid: str, message: str) -> Standing:
    """What is said while the test runs."""
    return Standing(status=None, reason=Reason.BURNING_IN, message=message, record=BurnIn(uuid=uuid))


def waiting(uuid: str, message: str, *, due: bool = False) -> Standing:
    """What is said while the test cannot begin."""
    return Standing(status=None, reason=Reason.BURN_IN_WAITING, message=message, record=BurnIn(uuid=uuid), due=due)


def told(card: DeviceView) -> Standing | None:
    """What the card's status says."""
    said, record = find(card.status.conditions, DeviceCondition.BURNED_IN), card.status.burn_in
    if said is None or record is None:
        return None
    status = {TRUE: True, FALSE: False}.get(said.status)
    return Standing(status=status, reason=said.reason, message=said.message, record=record)


def in_pool(card: DeviceView, uuid: str | None, ordered: str | None) -> bool:
    """Whether this very card is ordered into a pool, and meant for it: another one in its place has no approval."""
    hardware, record = card.status.hardware, card.status.burn_in
    approved = card.metadata.annotations.get(Annotation.ASSIGNMENT)
    described = hardware is not None and hardware.uuid == uuid and (record is None or record.uuid == uuid)
    return described and ordered is not None and ordered == approved


def _open(uuid: str, facts: Facts) -> Standing:
    """Nothing is known of the card yet."""
    if facts.running is not None:
        return begun(uuid, facts.running)
    return waiting(uuid, facts.obstacle) if facts.obstacle else waiting(uuid, "It is about to begin.", due=True)
