"""Which clusters a RayService should have: the active one, a pending one that is to take over, and those that go. Pure.

The names are in the status before a cluster is made, so a crash in between makes no second one. What has to be
remembered beside them is on the clusters themselves.
"""

import enum
from datetime import datetime, timedelta

import msgspec

from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.api.ray.reasons import ServiceReason
from gpu_control_plane.api.ray.service import ServiceCondition, ServiceUpgradeType
from gpu_control_plane.kube.conditions import find, is_true
from gpu_control_plane.ray.event_record import EventRecord
from gpu_control_plane.ray.service.desired_cluster import (
    Match,
    SpecFingerprint,
    fingerprint_of,
    fingerprint_when_taken_over,
    match,
    scale_hash,
)
from gpu_control_plane.ray.service.gateway_use import is_incremental, upgrade_type, waits_for_gateway
from gpu_control_plane.ray.service.handover_budget import HandoverBudget, choose_handover
from gpu_control_plane.ray.service.snapshot import ClusterView, Snapshot


class UpgradeMode(enum.Enum):
    """How one cluster takes over from another."""

    NONE = "there is no upgrade"
    AT_ONCE = "when all of it runs"
    INCREMENTAL = "in steps of capacity and requests"
    HANDOVER = "worker by worker"


class Roles(msgspec.Struct, frozen=True, kw_only=True):
    """Which cluster has which role from now on."""

    active: str = ""
    pending: str = ""
    mode: UpgradeMode = UpgradeMode.NONE
    back: bool = False
    """Whether the upgrade is being undone: the active cluster gets everything back."""
    create: bool = False
    """Whether the pending cluster is to be made."""
    budget: HandoverBudget | None = None
    """Of a handover."""
    drop: tuple[ClusterView, ...] = ()
    """Clusters that have never answered and are not wanted any more: they are deleted at once."""
    refused: str = ""
    """Why a change of the spec is not carried out."""
    events: tuple[EventRecord, ...] = ()


def decide_roles(s: Snapshot) -> Roles:
    """Which cluster should have which role."""
    if s.pending_status.ray_cluster_name:
        return _with_pending(s)
    active = s.active
    if active is None or active.deleting:
        return _start(s, active)
    if match_of(s, active) is not Match.OTHER:
        return Roles(active=active.name)
    if refused := _refused(s):
        return Roles(active=active.name, refused=refused)
    return _start(s, active)


def match_of(s: Snapshot, view: ClusterView) -> Match:
    """How the spec that a cluster was made from compares with the spec of the service."""
    return match(current_fingerprint(s, view), s.service.spec.ray_cluster_config)


def current_fingerprint(s: Snapshot, view: ClusterView) -> SpecFingerprint:
    if not is_foreign(s, view):
        return fingerprint_of(view.cluster)
    newest = s.pending_status.ray_cluster_name or s.active_status.ray_cluster_name
    # That the last operator has observed this generation does not mean that the newest cluster was made from it, if
    # changes are not carried out, or the last one was refused or waits for a rollback.
    held = s.service.status.conditions
    up_to_date = find(held, ServiceCondition.UP_TO_DATE)
    refused = up_to_date is not None and up_to_date.reason == ServiceReason.NOT_CARRIED_OUT
    waits = refused or is_true(held, ServiceCondition.ROLLBACK_IN_PROGRESS)
    carried_out = not waits and upgrade_type(s.service) is not ServiceUpgradeType.NONE and not _without_upgrades(s)
    return fingerprint_when_taken_over(view.cluster, s.service, newest=view.name == newest and carried_out)


def is_foreign(s: Snapshot, view: ClusterView) -> bool:
    """Whether another operator, or another release, has written the fingerprint of the cluster."""
    return view.annotation(Annotation.KUBERAY_VERSION) != s.options.version


def deletion_delay(s: Snapshot) -> timedelta:
    """How long a cluster stays after requests have moved to another."""
    seconds = s.service.spec.ray_cluster_deletion_delay_seconds
    return s.timings.deletion_delay if seconds is None else timedelta(seconds=seconds)


def unused_since(view: ClusterView) -> datetime | None:
    """Since when a cluster has had no role: an annotation of it, so the delay survives a restart of the operator."""
    try:
        found = datetime.fromisoformat(view.annotation(Annotation.UNUSED_SINCE))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _with_pending(s: Snapshot) -> Roles:  # noqa: PLR0911 - one question after the other
    name, active, pending = s.pending_status.ray_cluster_name, s.active, s.pending
    living = active if active is not None and not active.deleting else None
    fulfilled = living is not None and match_of(s, living) is not Match.OTHER
    if pending is None or pending.deleting:
        if living is not None and fulfilled:
            return Roles(active=living.name)
        if living is not None and (refused := _refused(s)):
            return Roles(active=living.name, refused=refused)
        return _start(s, active, name="" if pending is not None else name)
    mode = _mode_of(s, active, pending)
    budget = HandoverBudget.read(pending.annotation(Annotation.HANDOVER))
    if match_of(s, pending) is not Match.OTHER:
        return Roles(active=active.name if active is not None else "", pending=name, mode=mode, budget=budget)
    if s.backend == name and (living is None or mode is UpgradeMode.AT_ONCE):
        return _with_requests(s, living, pending, fulfilled=fulfilled)
    if living is None:
        return _replace(s, active, pending)
    if mode is UpgradeMode.INCREMENTAL or (mode is UpgradeMode.HANDOVER and fulfilled):
        return Roles(active=living.name, pending=name, mode=mode, back=True, budget=budget)
    refused = "" if fulfilled else _refused(s)
    if fulfilled or refused:
        if mode is UpgradeMode.HANDOVER:
            return Roles(active=living.name, pending=name, mode=mode, back=True, budget=budget, refused=refused)
        return Roles(active=living.name, drop=(pending,), refused=refused)
    if s.backend == name:
        # Requests go to it already, so it counts as the active one.
        return _start(s, pending)
    return _replace(s, living, pending)


def _with_requests(s: Snapshot, living: ClusterView | None, pending: ClusterView, *, fulfilled: bool) -> Roles:
    """Requests go to the pending cluster already, but the spec has changed: it stays until another one answers."""
    if living is None or not (fulfilled or _refused(s)):
        return _start(s, pending)
    if fulfilled:
        return Roles(active=pending.name, pending=living.name, mode=UpgradeMode.AT_ONCE)
    return Roles(active=pending.name, refused=_refused(s))


def _replace(s: Snapshot, active: ClusterView | None, pending: ClusterView) -> Roles:
    started = _start(s, active)
    return msgspec.structs.replace(started, drop=(pending,) if started.pending != pending.name else ())


def _mode_of(s: Snapshot, active: ClusterView | None, pending: ClusterView) -> UpgradeMode:
    if active is None:
        return UpgradeMode.AT_ONCE
    if s.pending_status.target_capacity is not None:
        return UpgradeMode.INCREMENTAL
    return UpgradeMode.HANDOVER if pending.annotation(Annotation.HANDOVER) else UpgradeMode.AT_ONCE


def _start(s: Snapshot, active: ClusterView | None, name: str = "") -> Roles:
    """A new pending cluster, or a former one that matches the spec and has not been deleted yet."""
    roles = Roles(
        active=active.name if active is not None else "",
        pending=name or f"{s.service.name}-{s.suffix}",
        mode=UpgradeMode.AT_ONCE,
        create=True,
    )
    before = None if name else _of_before(s, active)
    if before is not None:
        roles = msgspec.structs.replace(roles, pending=before.name, create=False)
    if active is None or active.deleting:
        return roles
    if is_incremental(s.service):
        return msgspec.structs.replace(roles, mode=UpgradeMode.INCREMENTAL)
    if before is not None:
        return roles
    choice = choose_handover(s, active)
    mode = UpgradeMode.HANDOVER if choice.budget is not None else roles.mode
    return msgspec.structs.replace(roles, mode=mode, budget=choice.budget, events=choice.events)


def _of_before(s: Snapshot, active: ClusterView | None) -> ClusterView | None:
    desired = s.service.spec.ray_cluster_config
    keep = {active.name if active is not None else "", s.pending_status.ray_cluster_name}
    for view in s.without_role(*keep):
        whole = view.annotation(Annotation.APPLIED_SCALE) == scale_hash(desired)
        if whole and not view.deleting and not is_foreign(s, view) and match_of(s, view) is Match.SAME:
            return view
    return None


def _refused(s: Snapshot) -> str:
    """Why a change of the spec does not lead to a new cluster; empty if it does."""
    kind = upgrade_type(s.service)
    if kind is ServiceUpgradeType.NONE:
        return "spec.upgradeStrategy.type is None: set it to NewCluster to have the change carried out"
    if _without_upgrades(s):
        return "ENABLE_ZERO_DOWNTIME is false: set spec.upgradeStrategy.type to NewCluster to have it carried out"
    if kind is ServiceUpgradeType.INCREMENTAL and not s.gateway.served:
        if not s.gateway.known:
            return "it is not known yet whether the Gateway API is installed"
        return "the Gateway API is not installed: install it, or set spec.upgradeStrategy.type to NewCluster"
    return ""


def _without_upgrades(s: Snapshot) -> bool:
    return upgrade_type(s.service) is None and not s.options.zero_downtime


def follows_config(s: Snapshot, roles: Roles, view: ClusterView) -> bool:
    """Whether the cluster gets the serve configuration of the spec; one that is being replaced keeps its own."""
    if view.name == roles.pending:
        return not roles.back
    if not roles.pending:
        # A change that has to wait may come with a configuration that is written for the next cluster.
        return not (roles.refused and waits_for_gateway(s))
    return roles.back and match_of(s, view) is not Match.OTHER


def capacity_of(s: Snapshot, name: str) -> int | None:
    """The percentage of replicas that the status gives a cluster in an incremental upgrade."""
    held = (s.active_status, s.pending_status)
    return next((each.target_capacity for each in held if name and each.ray_cluster_name == name), None)
