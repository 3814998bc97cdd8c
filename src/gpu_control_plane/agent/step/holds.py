"""Which pods hold which units, also those that the kubelet has forgotten. Pure.

The kubelet forgets a pod at once when it is deleted by force, or when its checkpoint is lost, while the containers of
the pod may run on for as long as the tenant chose. And it never lists init containers, which run again, with the
devices they once got, whenever the sandbox of their pod is lost. So a hold once seen lasts until the control group of
its pod has no process, and what the checkpoint records for a pod is held for as long as it is recorded.

The checkpoint is the kubelet's own word on which pods have not ended, but an old one: it is written when something is
allocated, and whenever a plugin sends a list. So where it records what the kubelet does not list, the kubelet is sent a
list once more: the record of a pod that has ended, or was forgotten, is gone then, and that of an init container stays.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Final

import msgspec

from gpu_control_plane.agent.hardware_snapshot import ObservedCard
from gpu_control_plane.agent.step.pod_allocations import CardRef, CardRefs, PodAllocations, allocated_unit
from gpu_control_plane.agent.step.snapshot import CheckpointRewrite, KubeletSnapshot
from gpu_control_plane.agent.units import Hold, PodDevices, Unit, clash
from gpu_control_plane.api.gpunodestate import OrderProblem, ProblemReason

FORGOTTEN_GRACE_SECONDS: Final = 2.0
"""For so long a unit of a forgotten pod stays listed as healthy: most such pods end soon, Allocate waits for them, and
a pod that finds the unit unhealthy fails."""
_REWRITTEN_SECONDS: Final = 0.5
"""Time in which a kubelet that was sent a list has written its checkpoint."""
_REWRITE_SECONDS: Final = 5.0
"""Time until the same records are doubted again: a pod whose init container has a unit may end at any time."""


class PodHolds(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds what."""

    holds: frozenset[Hold]
    """Every hold of a pod whose UID is known."""
    forgotten: frozenset[Hold]
    """Those of them that the kubelet does not know of: it would give the unit to another pod."""
    unlisted: frozenset[Hold]
    """Those of them that only the checkpoint tells: of an init container, or of a pod that has ended since."""

    @property
    def in_order(self) -> list[Hold]:
        return _in_order(self.holds)


def pod_holds(
    kubelet: KubeletSnapshot, allocations: PodAllocations, refs: CardRefs, remembered: Collection[Hold]
) -> PodHolds:
    """The holds of now; `remembered` are those of the step before."""
    recorded, listed = _recorded(kubelet.checkpoint or (), refs), allocations.held
    names = {uid: listed[unit] for unit, uid in recorded if unit in listed}
    names |= {hold.pod_uid: hold.pod for hold in remembered if hold.pod != _nameless(hold.pod_uid)}
    # Where the checkpoint does not tell, the name of a pod stands for its UID.
    known = recorded | {
        (hold.unit, hold.pod_uid)
        for hold in remembered
        if kubelet.checkpoint is None and listed.get(hold.unit) == hold.pod
    }
    seen_before = _recorded(kubelet.recorded_before, refs) | {(hold.unit, hold.pod_uid) for hold in remembered}
    forgotten = {(unit, uid) for unit, uid in seen_before - known if uid in kubelet.living}

    def holds(pairs: Iterable[tuple[Unit, str]]) -> frozenset[Hold]:
        return frozenset(Hold(unit, uid, names.get(uid) or _nameless(uid)) for unit, uid in pairs)

    return PodHolds(
        holds=holds(known | forgotten),
        forgotten=holds(forgotten),
        unlisted=holds(pair for pair in recorded if pair[0] not in listed),
    )


def checkpoint_rewrite(
    pod_holds: PodHolds, kubelet: KubeletSnapshot, last: CheckpointRewrite | None, now: float
) -> CheckpointRewrite | None:
    """Another one than the last if the kubelet has to write its checkpoint anew: it cannot be read, or records what is
    not listed, and that was not cleared up just now. None if nothing is in doubt."""
    doubted = frozenset((hold.unit, hold.pod_uid, hold.pod_uid in kubelet.living) for hold in pod_holds.unlisted)
    if kubelet.checkpoint is not None and not doubted:
        return None
    recorded = {hold.unit for hold in pod_holds.holds - pod_holds.forgotten}
    if kubelet.in_flight - recorded:
        return last  # The kubelet is about to record these: what it writes meanwhile might overwrite that.
    if last is None or doubted - last.doubted or now >= last.at + _REWRITE_SECONDS:
        return CheckpointRewrite(doubted, now)
    return last


def doubt_look_again(
    pod_holds: PodHolds, kubelet: KubeletSnapshot, rewrite: CheckpointRewrite | None, now: float
) -> float | None:
    """Seconds until the checkpoint should be read, or written, again. Of a pod that has processes it is enough to do so
    when something else happens."""
    if rewrite is None:
        return None
    if now < rewrite.at + _REWRITTEN_SECONDS:
        return rewrite.at + _REWRITTEN_SECONDS - now
    if kubelet.checkpoint is not None and all(hold.pod_uid in kubelet.living for hold in pod_holds.unlisted):
        return None
    return max(0.0, rewrite.at + _REWRITE_SECONDS - now)


def forgotten_since(pod_holds: PodHolds, before: Mapping[Hold, float], now: float) -> dict[Hold, float]:
    """Since when each forgotten hold has been known to be one."""
    return {hold: before.get(hold, now) for hold in _in_order(pod_holds.forgotten)}


def withheld_units(since: Mapping[Hold, float], now: float) -> set[Unit]:
    """The units that the kubelet is told are unhealthy, so that the next pod waits for them instead of failing."""
    return {hold.unit for hold, moment in since.items() if now >= moment + FORGOTTEN_GRACE_SECONDS}


def hold_problems(forgotten: Iterable[Hold]) -> Iterator[OrderProblem]:
    """What to say of cards that cannot be given to another pod yet, although Kubernetes knows no pod on them."""
    for hold in forgotten:
        yield OrderProblem(
            inventory_id=hold.unit.card,
            reason=ProblemReason.WAITING,
            message=(
                f"Processes of {hold.pod} (UID {hold.pod_uid}) still run with {hold.unit.id}, although the kubelet no"
                " longer knows of it: the pod was deleted by force, or the kubelet lost its checkpoint. The unit"
                " returns when they have ended."
            ),
        )


def recorded_holds(checkpoint: Iterable[PodDevices], cards: Iterable[ObservedCard]) -> frozenset[Hold]:
    """What the kubelet's checkpoint records of these cards, for pods that have ended, too."""
    refs = {card.hardware.uuid: CardRef(card.id, card.hardware) for card in cards if card.hardware.uuid}
    return frozenset(Hold(unit, uid, _nameless(uid)) for unit, uid in _recorded(checkpoint, refs))


def blocking_hold(unit: Unit, holds: Iterable[Hold], living: Set[str]) -> Hold | None:
    """The hold of a pod with processes that rules out giving this unit to another pod; None if there is none.

    A unit is allocated before its pod has any process: what blocks is always another pod's, or the same pod's from
    before a loss of the kubelet's checkpoint.
    """
    return next((hold for hold in _in_order(holds) if hold.pod_uid in living and clash(hold.unit, unit)), None)


def _recorded(checkpoint: Iterable[PodDevices], refs: CardRefs) -> set[tuple[Unit, str]]:
    return {
        (unit, entry.pod_uid)
        for entry in checkpoint
        for unit_id in entry.ids
        if (unit := allocated_unit(entry.resource, unit_id, refs)) is not None
    }


def _nameless(uid: str) -> str:
    return f"the pod with the UID {uid}"


def _in_order(holds: Iterable[Hold]) -> list[Hold]:
    return sorted(holds, key=lambda hold: (hold.unit.resource, hold.unit.id, hold.pod_uid))
