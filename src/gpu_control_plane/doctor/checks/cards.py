"""Cards that are out of service, or wait for somebody."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.names import Annotation, DeviceCondition, Label, Reason
from gpu_control_plane.doctor.check import Found, Group, check
from gpu_control_plane.doctor.findings import Evidence, Severity, command_in, of_condition, reference
from gpu_control_plane.doctor.snapshot import Snapshot, Source
from gpu_control_plane.kube.conditions import FALSE, find
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.pools.pending_reasons import PendingReason

FORGOTTEN: Final = timedelta(days=1)
"""How long a card may wait for a person before that is a finding."""
_EXPIRED_FOR: Final = timedelta(minutes=1)

_UNDER_WAY: Final = frozenset({Reason.BURN_IN_WAITING.value, Reason.BURNING_IN.value})


def _explain(card: GPUDevice) -> str:
    return f"kubectl gpu explain device {card.name}"


def _unchanged_since(card: GPUDevice) -> datetime | None:
    """When something last happened to the card, or when it was found."""
    return card.status.history[0].when if card.status.history else card.metadata.creation_timestamp


def _waiting(snapshot: Snapshot, reason: PendingReason) -> Iterator[tuple[GPUDevice, timedelta]]:
    """The cards that have waited for too long, by this reason."""
    for card in snapshot.cards:
        since = _unchanged_since(card)
        if card.status.pending_reason == reason and since is not None and snapshot.now - since > FORGOTTEN:
            yield card, snapshot.now - since


@check("card-faulted", "A card has a hardware fault", Group.CARDS, Severity.WARNING, Source.CARDS)
def card_faulted(snapshot: Snapshot) -> Iterator[Found]:
    for card in snapshot.cards:
        said = find(card.status.conditions, DeviceCondition.HEALTHY)
        unhealthy = said is not None and said.status == FALSE
        if not unhealthy and card.status.state is not DeviceState.FAULTED:
            continue
        users = card.status.used_by
        held = f" {users[0].namespace}/{users[0].pod} still holds it." if users else ""
        message = said.message if said is not None else "its agent has not said why"
        yield Found(
            about=f"card {card.name}",
            sentence=f"It is out of service: {message}{'' if message.endswith('.') else '.'}{held}",
            evidence=of_condition(card, said)
            if said is not None
            else Evidence(reference(card), "status.state", str(card.status.state)),
            fix=command_in(message, f"kubectl annotate gpudevice {card.name} {Annotation.CLEAR_FAULT.value}=mended"),
        )


@check("burn-in-failed", "A new card did not pass its test", Group.CARDS, Severity.WARNING, Source.CARDS)
def burn_in_failed(snapshot: Snapshot) -> Iterator[Found]:
    for card in snapshot.cards:
        said = find(card.status.conditions, DeviceCondition.BURNED_IN)
        if said is not None and said.status == FALSE and said.reason not in _UNDER_WAY:
            yield Found(
                about=f"card {card.name}",
                sentence=f"It joins no pool: {said.message or said.reason}",
                evidence=of_condition(card, said),
                fix=command_in(
                    said.message, f"kubectl annotate gpudevice {card.name} {Annotation.CLEAR_FAULT.value}=mended"
                ),
            )


@check(
    "request-not-followed",
    "An approval or a label of a card has no effect",
    Group.CARDS,
    Severity.WARNING,
    Source.CARDS,
)
def request_not_followed(snapshot: Snapshot) -> Iterator[Found]:
    """Such as an approval for a pool that does not exist, or that cannot have the card."""
    for card in snapshot.cards:
        if card.status.message:
            yield Found(
                about=f"card {card.name}",
                sentence=card.status.message,
                evidence=Evidence(reference(card), "status.pendingReason", card.status.pending_reason or "absent"),
                fix=command_in(card.status.message, _explain(card)),
            )


@check("card-ignored-in-use", "A card is ignored though pods hold it", Group.CARDS, Severity.WARNING, Source.CARDS)
def card_ignored_in_use(snapshot: Snapshot) -> Iterator[Found]:
    for card in snapshot.cards:
        if card.ignored and card.status.used_by:
            user = card.status.used_by[0]
            yield Found(
                about=f"card {card.name}",
                sentence=f"The label {Label.IGNORE} takes it out of service, and {user.namespace}/{user.pod} goes on "
                "to use it.",
                evidence=Evidence(reference(card), f"metadata.labels[{Label.IGNORE.value}]", "true"),
                fix=f"kubectl -n {user.namespace} delete pod {user.pod}",
            )


@check("card-held", "A card is held back", Group.CARDS, Severity.INFO, Source.CARDS)
def card_held(snapshot: Snapshot) -> Iterator[Found]:
    for card, waited in _waiting(snapshot, PendingReason.HELD):
        why = card.metadata.annotations.get(Annotation.HOLD, "")
        yield Found(
            about=f"card {card.name}",
            sentence=f"It has been held back for {counted(waited.days, 'day')}"
            f"{f', because of «{why}»' if why else ''}, and is in no pool.",
            evidence=Evidence(reference(card), f"metadata.annotations[{Annotation.HOLD.value}]", why),
            fix=f"kubectl annotate gpudevice {card.name} {Annotation.HOLD.value}-",
        )


@check("card-awaits-approval", "A card waits for an approval", Group.CARDS, Severity.INFO, Source.CARDS, Source.POOLS)
def card_awaits_approval(snapshot: Snapshot) -> Iterator[Found]:
    pool = snapshot.pools[0].name if len(snapshot.pools) == 1 else "POOL"
    for card, waited in _waiting(snapshot, PendingReason.APPROVAL):
        yield Found(
            about=f"card {card.name}",
            sentence=f"A pool selects it, and nobody has approved it for {counted(waited.days, 'day')}.",
            evidence=Evidence(reference(card), "status.pendingReason", str(card.status.pending_reason)),
            fix=f"kubectl gpu approve {card.name} --pool {pool}",
        )


@check("card-without-pool", "No pool selects a card", Group.CARDS, Severity.INFO, Source.CARDS)
def card_without_pool(snapshot: Snapshot) -> Iterator[Found]:
    for card, waited in _waiting(snapshot, PendingReason.NO_POOL):
        yield Found(
            about=f"card {card.name}",
            sentence=f"No pool selects it, for {counted(waited.days, 'day')}: nobody can use it.",
            evidence=Evidence(reference(card), "status.pendingReason", str(card.status.pending_reason)),
            fix=_explain(card),
        )


@check(
    "card-not-probed",
    "An agent has not said whether a card works",
    Group.CARDS,
    Severity.WARNING,
    Source.CARDS,
    settles=True,
)
def card_not_probed(snapshot: Snapshot) -> Iterator[Found]:
    for card in snapshot.cards:
        found = card.metadata.creation_timestamp
        young = found is not None and snapshot.now - found < _EXPIRED_FOR
        if not young and not card.ignored and find(card.status.conditions, DeviceCondition.HEALTHY) is None:
            yield Found(
                about=f"card {card.name}",
                sentence="Its agent has not said whether it works, so it joins no pool.",
                evidence=Evidence(reference(card), f"status.conditions[{DeviceCondition.HEALTHY}]", "absent"),
                fix=f"kubectl gpu explain node {card.spec.node_name}",
            )


@check(
    "reservation-not-ended",
    "A promise of a card has run out and was not taken back",
    Group.CARDS,
    Severity.WARNING,
    Source.CARDS,
    settles=True,
)
def reservation_not_ended(snapshot: Snapshot) -> Iterator[Found]:
    """The controller takes it back at once; if it does not, it does not work."""
    for card in snapshot.cards:
        promise = card.status.reservation
        if promise is not None and promise.expires_at < snapshot.now - _EXPIRED_FOR:
            yield Found(
                about=f"card {card.name}",
                sentence=f"It is promised to {promise.holder} although that has run out: no other pod gets it.",
                evidence=Evidence(reference(card), "status.reservation.expiresAt", promise.expires_at.isoformat()),
                fix=f"kubectl -n {promise.holder.partition('/')[0]} describe pod {promise.holder.partition('/')[2]}",
            )
