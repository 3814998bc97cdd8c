"""Whether a new cluster needs the cards of the old one, and with which cards a handover of them begins. Pure."""

from typing import Final

import msgspec

from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.ray.demand import group_replicas
from gpu_control_plane.ray.event_record import EventRecord
from gpu_control_plane.ray.service.desired_cluster import replicas_of
from gpu_control_plane.ray.service.events import ServiceEvent
from gpu_control_plane.ray.service.handover import (
    GAP,
    NONE,
    Units,
    cluster_capacity,
    demand,
    fits,
    has_gap,
    pod_units,
    scheduled_units,
    settled,
    total,
)
from gpu_control_plane.ray.service.snapshot import ClusterView, Snapshot

NEVER: Final = "never"
ALWAYS: Final = "always"


class Bounds(msgspec.Struct, frozen=True, array_like=True):
    """How many replicas a group had, and might have."""

    replicas: int
    least: int | None = None
    most: int | None = None


class HandoverBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The cards and replicas that a handover began with, kept in an annotation of the cluster that takes over."""

    allowance: dict[str, int]
    """Units that both clusters may ask for together."""
    own: dict[str, int] = {}
    """Of them, those that the old cluster had; the others were free, and other pods may have taken them since."""
    goals: dict[str, int] = {}
    """Replicas that the new cluster comes to, by group: those of the old one, where Ray's autoscaler had decided."""
    full: dict[str, Bounds] = {}
    """The groups of the old cluster, as they were."""

    def text(self) -> str:
        return msgspec.json.encode(self, order="deterministic").decode()

    @classmethod
    def read(cls, text: str) -> "HandoverBudget | None":
        try:
            return msgspec.json.decode(text, type=cls) if text else None
        except msgspec.DecodeError:
            return None


class HandoverChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an upgrade begins as a handover, and the Events that say why."""

    budget: HandoverBudget | None = None
    """Of the handover; None where both clusters run beside each other."""
    events: tuple[EventRecord, ...] = ()


def choose_handover(s: Snapshot, active: ClusterView) -> HandoverChoice:
    """Whether both clusters fit beside each other, and if not, with which cards workers are handed over."""
    setting = in_place_upgrade_setting(s.service)
    if setting == NEVER:
        return HandoverChoice()
    desired = s.service.spec.ray_cluster_config
    goals = _goals(s, active)
    needed = demand(desired, goals, s.free)
    lacking = {resource: units for resource, units in needed.items() if units > s.free.get(resource, units)}
    if setting != ALWAYS and not lacking:
        return HandoverChoice()
    head = pod_units(desired.head_group_spec.template, s.free)
    if not fits(head, s.free):
        note = (
            f"the head of the new cluster needs {_words(head)}, and only {_words(s.free, head)} is free: the upgrade "
            "waits for it, since workers are handed over by a head that runs"
        )
        return HandoverChoice(events=(EventRecord(reason=ServiceEvent.UPGRADE_WAITS, note=note, warning=True),))
    budget = new_budget(s, active)
    return HandoverChoice(budget=budget, events=(_announcement(s, active, goals, budget, lacking),))


def in_place_upgrade_setting(service: RayService) -> str:
    """The value of the annotation gpu.deckhouse.io/in-place-upgrade: auto, always or never."""
    return service.metadata.annotations.get(Annotation.IN_PLACE_UPGRADE.value, "")


def _announcement(
    s: Snapshot, active: ClusterView, goals: dict[str, int], budget: HandoverBudget, lacking: Units
) -> EventRecord:
    target = cluster_capacity(s.service.spec.ray_cluster_config, (), goals, s.free, head_ready=True)
    target = msgspec.structs.replace(
        target, groups=tuple(msgspec.structs.replace(group, wanted=0) for group in target.groups)
    )
    source = cluster_capacity(active.cluster.spec, active.pods, {}, s.free, head_ready=True)
    why = f"a second cluster needs {_words(lacking)}, and {_words(s.free, lacking)} is free" if lacking else "as asked"
    note = f"{why}: workers are handed over one by one"
    if has_gap(target, settled(source), budget.allowance):
        return EventRecord(reason=ServiceEvent.UPGRADE_WITH_GAP, note=f"{note}; {GAP}", warning=True)
    return EventRecord(reason=ServiceEvent.UPGRADE_BY_HANDOVER, note=note)


def new_budget(s: Snapshot, active: ClusterView) -> HandoverBudget:
    """The budget of a handover that begins now."""
    return HandoverBudget(
        allowance=within_reach(s, s.free),
        own=_held_by(s, active),
        goals=_goals(s, active),
        full={
            group.group_name: Bounds(group_replicas(group), group.min_replicas, group.max_replicas)
            for group in active.cluster.spec.worker_group_specs
        },
    )


def _goals(s: Snapshot, active: ClusterView) -> dict[str, int]:
    """Replicas that the new cluster comes to. Under Ray's autoscaler those that the old one has, within its bounds."""
    desired = s.service.spec.ray_cluster_config
    if not desired.autoscales:
        return replicas_of(desired)
    held = replicas_of(active.cluster.spec)
    return {
        group.group_name: group_replicas(
            msgspec.structs.replace(group, replicas=max(group.replicas or 0, held.get(group.group_name, 0)))
        )
        for group in desired.worker_group_specs
    }


def within_reach(s: Snapshot, free: Units) -> dict[str, int]:
    """Cards that the clusters have together, and those that they could get of what is free."""
    held = total((_held_by(s, view), 1) for view in s.clusters)
    # What a pool has free is of no use to a namespace whose quota is used up.
    usable = NONE if any(view.over_quota_since for view in s.clusters) else free
    return total([(held, 1), (usable, 1)])


def _held_by(s: Snapshot, view: ClusterView) -> dict[str, int]:
    """Cards that a cluster has: those of pods that are on a node."""
    seen = cluster_capacity(view.cluster.spec, view.pods, {}, s.free, head_ready=True)
    head = view.head
    return scheduled_units(seen.groups, seen.head if head is not None and head.spec.node_name else NONE)


def cluster_units(view: ClusterView, free: Units = NONE) -> dict[str, int]:
    """The cards that a cluster has or asks for; of one that goes, those of the pods that it still has."""
    held = cluster_capacity(view.cluster.spec, view.pods, {}, free, head_ready=True)
    if not view.deleting:
        return held.units
    gone = tuple(msgspec.structs.replace(group, wanted=0) for group in held.groups)
    return msgspec.structs.replace(held, groups=gone, head=held.head if view.head is not None else NONE).units


def _words(units: Units, only: Units | None = None) -> str:
    chosen = {resource: count for resource, count in units.items() if only is None or resource in only}
    return ", ".join(f"{count} {resource}" for resource, count in sorted(chosen.items())) or "none"
