"""The next step of a handover, and how an upgrade becomes one when the cards that it counted on are gone. Pure."""

from datetime import timedelta

import msgspec
from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import WorkerGroupSpec
from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.api.ray.service import ServedCluster
from gpu_control_plane.ray.event_record import EventRecord
from gpu_control_plane.ray.service import handover
from gpu_control_plane.ray.service.actions import PatchCluster
from gpu_control_plane.ray.service.backend import choose
from gpu_control_plane.ray.service.desired_cluster import Match, replicas_of, with_replicas
from gpu_control_plane.ray.service.events import ServiceEvent
from gpu_control_plane.ray.service.gateway_use import is_incremental
from gpu_control_plane.ray.service.handover import ClusterCapacity, Done, Grow, Move, Shrink, SwitchFirst, Wait
from gpu_control_plane.ray.service.handover_budget import (
    ALWAYS,
    NEVER,
    Bounds,
    HandoverBudget,
    cluster_units,
    in_place_upgrade_setting,
    new_budget,
    within_reach,
)
from gpu_control_plane.ray.service.incremental import ALL
from gpu_control_plane.ray.service.roles import Roles, match_of
from gpu_control_plane.ray.service.snapshot import ClusterView, Snapshot
from gpu_control_plane.ray.service.upgrade_plan import UpgradePlan, answers, candidate, waits_for


def plan_handover(
    s: Snapshot, roles: Roles, budget: HandoverBudget, active: ClusterView, pending: ClusterView
) -> UpgradePlan:
    """The next worker that goes or comes, in the direction that the roles say."""
    taking, giving = (active, pending) if roles.back else (pending, active)
    target = _cluster_capacity(s, taking, _goals(s, roles, budget, taking))
    source = _cluster_capacity(s, giving, {})
    others = handover.total((cluster_units(view, s.free), 1) for view in s.without_role(active.name, pending.name))
    time_left = _handover_time_left(s, taking, target)
    stuck = scheduling_time_left(s, taking)
    move = handover.next_move(
        target,
        source,
        _allowance(s, budget) if stuck is not None and stuck <= timedelta() else budget.allowance,
        switched=s.backend == taking.name,
        may_answer=answers(s, taking),
        patient=time_left is not None,
        answers_all=taking.answers_all,
        failing=taking.is_failing,
        others=others,
    )
    complete = isinstance(move, Done) and taking.ready
    backend = choose(
        s.backend,
        candidate(s, taking, takes_over=taking.answers_all and handover.outweighs(target, source)),
        candidate(s, giving, takes_over=True),
        must_leave=isinstance(move, SwitchFirst),
    )
    moved = sum(min(group.running, group.goal) for group in target.groups)
    goal = sum(group.goal for group in target.groups)
    progress = f"{moved} of {goal} workers with cards are those of {taking.name}; requests go to {backend or 'none'}"
    waiting = _waiting(move, taking)
    percent = ALL if backend == pending.name else 0
    return UpgradePlan(
        active=ServedCluster(traffic_routed_percent=ALL - percent),
        pending=ServedCluster(traffic_routed_percent=percent),
        backend=backend,
        complete=complete and backend == taking.name,
        patches=_patches(s, roles, budget, move, taking=taking, giving=giving),
        progress=f"{progress}; {waiting}" if waiting else progress,
        loss=_loss(taking, source, backend),
        again_in=min((wait for wait in (time_left, stuck) if wait is not None and wait > timedelta()), default=None),
    )


def may_hand_over(s: Snapshot, active: ClusterView, pending: ClusterView) -> bool:
    """Whether workers of the pending cluster that find no cards can get those of the active one. Unless it was asked
    for, a pool or a quota has to lack room: cards of no pool may come with a new node, and to a worker that no node
    suits they would be of no use."""
    setting = in_place_upgrade_setting(s.service)
    if active.deleting or pending.ready or is_incremental(s.service) or setting == NEVER:
        return False
    target, source = _cluster_capacity(s, pending, {}), _cluster_capacity(s, active, {})
    refused = pending.over_quota_since is not None
    waiting = [group for group in target.groups if group.unscheduled or (refused and group.there < group.wanted)]
    lacking = {
        resource
        for group in waiting
        for resource, units in group.units.items()
        if refused or setting == ALWAYS or not handover.fits({resource: units * max(1, group.gated)}, s.unheld)
    }
    return target.head_ready and any(group.wanted and lacking & group.units.keys() for group in source.groups)


def converted_to_handover(s: Snapshot, active: ClusterView, pending: ClusterView) -> PatchCluster:
    """The patch by which an upgrade whose cards are no longer free goes on as a handover, with the workers that have
    cards already."""
    target = _cluster_capacity(s, pending, {})
    found = {group.name: group.there - group.unscheduled for group in target.groups}
    spec = pending.cluster.spec

    def changed(group: WorkerGroupSpec) -> WorkerGroupSpec:
        if group.group_name not in found:
            return group
        kept = found[group.group_name]
        made = with_replicas(group, group, kept, scaled=spec.autoscales)
        return handover.with_pods_to_go(made, handover.pods_to_go(pending.pods, group, kept))

    groups = [msgspec.to_builtins(changed(group)) for group in spec.worker_group_specs]
    budget = new_budget(s, active)
    annotations = {
        Annotation.HANDOVER.value: budget.text(),
        Annotation.APPLIED_SCALE.value: None,
    }
    note = f"workers of {pending.name} find no cards: those of {active.name} are handed over one by one"
    begun = _cluster_capacity(s, pending, replicas_of(spec))
    begun = replace(begun, groups=tuple(replace(group, wanted=found[group.name]) for group in begun.groups))
    gap = handover.has_gap(
        handover.settled(begun), handover.settled(_cluster_capacity(s, active, {})), budget.allowance
    )
    event = EventRecord(
        reason=ServiceEvent.UPGRADE_WITH_GAP if gap else ServiceEvent.UPGRADE_BY_HANDOVER,
        note=f"{note}; {handover.GAP}" if gap else note,
        warning=gap,
    )
    body = {"metadata": {"annotations": annotations}, "spec": {"workerGroupSpecs": groups}}
    return PatchCluster(cluster=pending.cluster, body=body, event=event)


def scheduling_time_left(s: Snapshot, taking: ClusterView) -> timedelta | None:
    """How long the oldest worker without a node, or without room in a quota, may still wait for one; nothing or less if
    it has waited too long."""
    refused = [taking.over_quota_since] if taking.over_quota_since is not None else []
    made = refused + [
        pod.metadata.creation_timestamp
        for pod in taking.pods
        if not pod.is_head
        and not pod.deleting
        and not pod.ended
        and not pod.spec.node_name
        and pod.metadata.creation_timestamp is not None
    ]
    return min(made) + s.timings.scheduling_patience - s.now if made else None


def _allowance(s: Snapshot, budget: HandoverBudget) -> dict[str, int]:
    """What the clusters may ask for when cards that were free are gone: what they have, and what is free now. Cards of
    their own that other pods have taken are waited for: otherwise the last worker would go for nothing."""
    now = within_reach(s, s.unheld)
    return {
        resource: max(budget.own.get(resource, 0), min(units, now.get(resource, 0)))
        for resource, units in budget.allowance.items()
    }


def _cluster_capacity(s: Snapshot, view: ClusterView, goals: dict[str, int]) -> ClusterCapacity:
    return handover.cluster_capacity(view.cluster.spec, view.pods, goals, s.free, head_ready=view.head_ready)


def _goals(s: Snapshot, roles: Roles, budget: HandoverBudget, taking: ClusterView) -> dict[str, int]:
    """Replicas that the target comes to: those of the service. Where Ray's autoscaler decides on them, or the target
    no longer matches the spec, those that the budget began with."""
    desired = s.service.spec.ray_cluster_config
    if match_of(s, taking) is not Match.OTHER and not desired.autoscales:
        return replicas_of(desired)
    return {name: bounds.replicas for name, bounds in budget.full.items()} if roles.back else budget.goals


def _handover_time_left(s: Snapshot, taking: ClusterView, target: ClusterCapacity) -> timedelta | None:
    """How long the youngest workers may still take to answer; None if they have had their time."""
    with_cards = {group.name for group in target.groups}
    made = [
        pod.metadata.creation_timestamp
        for pod in taking.pods
        if pod.group in with_cards and pod.metadata.creation_timestamp is not None
    ]
    left = max(made) + s.timings.handover_patience - s.now if made else s.timings.handover_patience
    return left if left > timedelta() else None


def _patches(
    s: Snapshot, roles: Roles, budget: HandoverBudget, move: Move, *, taking: ClusterView, giving: ClusterView
) -> tuple[PatchCluster, ...]:
    match move:
        case Shrink():
            note = f"worker of group {move.group} goes, {move.replicas} stay: its cards are for {taking.name}"
            if move.gap:
                note += "; until a worker of that answers, nothing does"
            event = EventRecord(reason=ServiceEvent.HANDING_OVER, note=note, warning=move.gap)
            return (_scaled(giving, move.group, move.replicas, None, event),)
        case Grow():
            bounds = _bounds(s, roles, budget, taking, move.group)
            event = EventRecord(
                reason=ServiceEvent.HANDING_OVER, note=f"{taking.name} gets worker {move.replicas} of {move.group}"
            )
            return (_scaled(taking, move.group, move.replicas, bounds, event),)
        case _:
            return ()


def _scaled(
    view: ClusterView, name: str, replicas: int, bounds: WorkerGroupSpec | None, event: EventRecord
) -> PatchCluster:
    spec = view.cluster.spec

    def changed(group: WorkerGroupSpec) -> WorkerGroupSpec:
        if group.group_name != name:
            return group
        made = with_replicas(group, bounds or group, replicas, scaled=spec.autoscales)
        going = handover.pods_to_go(view.pods, group, replicas) if bounds is None else ()
        return handover.with_pods_to_go(made, going)

    groups = [msgspec.to_builtins(changed(group)) for group in spec.worker_group_specs]
    # The service's own numbers hold again when the handover is over.
    annotations = {Annotation.APPLIED_SCALE.value: None}
    body = {"metadata": {"annotations": annotations}, "spec": {"workerGroupSpecs": groups}}
    return PatchCluster(cluster=view.cluster, body=body, event=event)


def _bounds(s: Snapshot, roles: Roles, budget: HandoverBudget, taking: ClusterView, name: str) -> WorkerGroupSpec:
    desired = s.service.spec.ray_cluster_config
    groups = desired.worker_group_specs if match_of(s, taking) is not Match.OTHER else ()
    held = next(group for group in taking.cluster.spec.worker_group_specs if group.group_name == name)
    known = next((group for group in groups if group.group_name == name), None)
    if known is not None:
        return known
    full = budget.full.get(name, Bounds(0, held.min_replicas, held.max_replicas)) if roles.back else None
    return replace(held, min_replicas=full.least, max_replicas=full.most) if full is not None else held


def _waiting(move: Move, taking: ClusterView) -> str:
    match move:
        case Wait():
            lacking = waits_for(taking)
            return f"waiting for {move.on}" + (f" ({lacking})" if lacking else "")
        case SwitchFirst():
            return f"requests go over before the last worker of group {move.group} does"
        case Done():
            return waits_for(taking)
        case _:
            return ""


def _loss(taking: ClusterView, source: ClusterCapacity, backend: str) -> str:
    if source.replicas or taking.answers_some:
        return ""
    return f"the only worker is being handed over: requests are answered again when {taking.name} does; {backend}"
