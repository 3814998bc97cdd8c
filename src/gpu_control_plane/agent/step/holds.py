"""Which pods hold which units, also those that the kubelet has forgotten. Pure.

The kubelet forgets a pod at once when it is deleted by force, or when its checkpoint is lost, while the containers of
the pod may run on for as long as the tenant chose. And it never lists init containers, which run again, with the
devices they once got, whenever the sandbox of their pod is lost. So a hold once seen lasts until the control group of
its pod has no process, and what the checkpoint records for a pod is held until the pod ends.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Final

import msgspec

from gpu_control_plane.agent.hardware_snapshot import ObservedCard
from gpu_control_plane.agent.step.pod_allocations import ENDED, CardRef, CardRefs, PodAllocations, allocated_unit
from gpu_control_plane.agent.step.snapshot import KubeletSnapshot
from gpu_control_plane.agent.units import Hold, PodDevices, Unit, clash
from gpu_control_plane.api.gpunodestate import OrderProblem, ProblemReason

FORGOTTEN_GRACE_SECONDS: Final = 2.0
"""For so long a unit of a forgotten pod stays listed as healthy: most such pods end soon, Allocate waits for them, and
a pod that finds the unit unhealthy fails."""


class PodHolds(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds what."""

    holds: frozenset[Hold]
    """Every hold of a pod whose UID is known."""
    forgotten: frozenset[Hold]
    """Those of them that the kubelet does not know of: it would give the unit to another pod."""

    @property
    def in_order(self) -> list[Hold]:
        return _in_order(self.holds)


def pod_holds(
    kubelet: KubeletSnapshot, allocations: PodAllocations, refs: CardRefs, remembered: Collection[Hold]
) -> PodHolds:
    """The holds of now; `remembered` are those of the step before."""
    active = {pod.metadata.uid: pod for pod in kubelet.pods if pod.status.phase not in ENDED}
    names = {uid: f"{pod.metadata.namespace}/{pod.name}" for uid, pod in active.items()}
    names |= {hold.pod_uid: hold.pod for hold in remembered if hold.pod_uid not in names}
    uids = {name: uid for uid, name in names.items() if uid in active}
    recorded = _recorded(kubelet.checkpoint or (), refs)
    of_checkpoint = dict(recorded)
    listed = {
        (unit, of_checkpoint.get(unit) or uids[name])
        for unit, name in allocations.held.items()
        if unit in of_checkpoint or name in uids
    }
    known = listed | {(unit, uid) for unit, uid in recorded if uid in active}
    seen_before = recorded | {(hold.unit, hold.pod_uid) for hold in remembered}
    forgotten = {(unit, uid) for unit, uid in seen_before - known if uid in kubelet.living}
    return PodHolds(
        holds=frozenset(Hold(unit, uid, names.get(uid, uid)) for unit, uid in known | forgotten),
        forgotten=frozenset(Hold(unit, uid, names.get(uid, uid)) for unit, uid in forgotten),
    )


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
    return frozenset(Hold(unit, uid, f"the pod with the UID {uid}") for unit, uid in _recorded(checkpoint, refs))


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


def _in_order(holds: Iterable[Hold]) -> list[Hold]:
    return sorted(holds, key=lambda hold: (hold.unit.resource, hold.unit.id, hold.pod_uid))
