"""How far an upgrade is and what its next step is, by its mode. Pure."""

from datetime import timedelta

from gpu_control_plane.api.ray.service import ServedCluster
from gpu_control_plane.ray.service.actions import PatchCluster
from gpu_control_plane.ray.service.backend import choose
from gpu_control_plane.ray.service.gateway_use import is_incremental
from gpu_control_plane.ray.service.handover_plan import (
    converted_to_handover,
    may_hand_over,
    plan_handover,
    scheduling_time_left,
)
from gpu_control_plane.ray.service.incremental import ALL, plan_incremental
from gpu_control_plane.ray.service.roles import Roles, UpgradeMode
from gpu_control_plane.ray.service.snapshot import ClusterView, Snapshot
from gpu_control_plane.ray.service.upgrade_plan import UpgradePlan, candidate, waits_for


def plan_upgrade(s: Snapshot, roles: Roles) -> UpgradePlan:
    """The next step of the upgrade, or none where there is no upgrade."""
    active, pending = s.named(roles.active), s.named(roles.pending)
    match roles.mode:
        case UpgradeMode.HANDOVER if active is not None and pending is not None and roles.budget is not None:
            return plan_handover(s, roles, roles.budget, active, pending)
        case UpgradeMode.INCREMENTAL if active is not None:
            return plan_incremental(s, roles, active, pending)
        case _:
            return _at_once(s, active, pending)


def _at_once(s: Snapshot, active: ClusterView | None, pending: ClusterView | None) -> UpgradePlan:
    share = ServedCluster(target_capacity=ALL, traffic_routed_percent=ALL) if is_incremental(s.service) else None
    if pending is None:
        source = candidate(s, active, takes_over=True) if active is not None else None
        progress = waits_for(active) if active is not None or s.pending_status.ray_cluster_name else waits_for(None)
        return UpgradePlan(backend=choose(s.backend, None, source), active=share, pending=share, progress=progress)
    target = candidate(s, pending, takes_over=pending.ready)
    source = candidate(s, active, takes_over=True) if active is not None else None
    backend = choose(s.backend, target, source)
    patches: tuple[PatchCluster, ...] = ()
    again_in = None
    if active is not None and may_hand_over(s, active, pending):
        again_in = scheduling_time_left(s, pending)
        if again_in is not None and again_in <= timedelta():
            patches, again_in = (converted_to_handover(s, active, pending),), None
    return UpgradePlan(
        active=share,
        # Beside an active cluster it gets no share: with one, its upgrade would count as incremental.
        pending=share if active is None else None,
        backend=backend,
        complete=pending.ready and backend == pending.name,
        patches=patches,
        progress=waits_for(pending),
        again_in=again_in,
    )
