"""The burn-in of a card as its BurnedIn condition reports it, and whether a test is due. Pure.

A card's status has the result together with the UUID of the card: so an agent that starts knows which cards have
passed, and another card in the same place is a new one.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from gpu_control_plane.agent.views import DeviceView
from gpu_control_plane.api.gpudevice import BurnIn
from gpu_control_plane.api.names import Annotation, DeviceCondition, Reason
from gpu_control_plane.kube.conditions import FALSE, TRUE, condition, find
from gpu_control_plane.kube.objects import Condition


class BurnInStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The BurnedIn condition of a card, and the card it is about."""

    status: bool | None
    """None while there is no result."""
    reason: str
    message: str
    record: BurnIn
    due: bool = False
    """Nothing prevents the test: it should begin."""

    @property
    def trusted(self) -> bool:
        """Whether the card may be allocated to pods."""
        return self.status is True

    def as_condition(self, held: Iterable[Condition], now: datetime) -> Condition:
        """The condition to write. Its transition time is that of `held` while the status does not change."""
        return condition(held, DeviceCondition.BURNED_IN, self.status, self.reason, self.message, now=now)


class BurnInFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one card."""

    uuid: str | None
    """None for a card that only the bus shows."""
    known: BurnInStatus | None = None
    """The last status of the card with this UUID; without a UUID, of the card at this place."""
    in_pool: bool = False
    """The card with this UUID is in a pool."""
    running: str | None = None
    """The message while its test runs; None while none does."""
    obstacle: str | None = None
    """Why a test cannot begin now, in a sentence; None when it can."""


def burn_in_status(facts: BurnInFacts, *, enabled: bool) -> BurnInStatus | None:
    """The status of a card; None for a card without a BurnedIn condition."""
    known = facts.known
    if facts.uuid is None or (known is not None and known.trusted):
        return known
    if not enabled:
        return None
    if known is None and facts.in_pool:
        message = "The card was in a pool before burn-in was switched on; it was left alone."
        return BurnInStatus(status=True, reason=Reason.IN_SERVICE, message=message, record=BurnIn(uuid=facts.uuid))
    if known is not None and known.status is False:
        return known
    return _open(facts.uuid, facts)


def status_running(uuid: str, message: str) -> BurnInStatus:
    """The status while the test runs."""
    return BurnInStatus(status=None, reason=Reason.BURNING_IN, message=message, record=BurnIn(uuid=uuid))


def status_waiting(uuid: str, message: str, *, due: bool = False) -> BurnInStatus:
    """The status while the test cannot begin."""
    return BurnInStatus(status=None, reason=Reason.BURN_IN_WAITING, message=message, record=BurnIn(uuid=uuid), due=due)


def reported_status(card: DeviceView) -> BurnInStatus | None:
    """The status that the card's GPUDevice has."""
    said, record = find(card.status.conditions, DeviceCondition.BURNED_IN), card.status.burn_in
    if said is None or record is None:
        return None
    status = {TRUE: True, FALSE: False}.get(said.status)
    return BurnInStatus(status=status, reason=said.reason, message=said.message, record=record)


def in_pool(card: DeviceView, uuid: str | None, ordered: str | None) -> bool:
    """Whether this card is ordered into the pool it is approved for. Another card in its place has no approval."""
    hardware, record = card.status.hardware, card.status.burn_in
    approved = card.metadata.annotations.get(Annotation.ASSIGNMENT)
    described = hardware is not None and hardware.uuid == uuid and (record is None or record.uuid == uuid)
    return described and ordered is not None and ordered == approved


def _open(uuid: str, facts: BurnInFacts) -> BurnInStatus:
    """The status of a card without a result."""
    if facts.running is not None:
        return status_running(uuid, facts.running)
    return (
        status_waiting(uuid, facts.obstacle)
        if facts.obstacle
        else status_waiting(uuid, "It is about to begin.", due=True)
    )
