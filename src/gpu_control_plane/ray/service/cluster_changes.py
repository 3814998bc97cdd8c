"""Creation, patches and deletion of the RayClusters of a RayService. Pure."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.ray.event_record import EventRecord
from gpu_control_plane.ray.options import OWN_VERSIONS
from gpu_control_plane.ray.service.actions import Action, CreateCluster, Delete, PatchCluster
from gpu_control_plane.ray.service.applications import accepted_annotation
from gpu_control_plane.ray.service.desired_cluster import (
    Match,
    SpecFingerprint,
    cluster_manifest,
    scale_hash,
    wanted_groups,
    with_replicas,
)
from gpu_control_plane.ray.service.events import ServiceEvent
from gpu_control_plane.ray.service.handover import replica_units
from gpu_control_plane.ray.service.roles import (
    Roles,
    UpgradeMode,
    current_fingerprint,
    deletion_delay,
    is_foreign,
    match_of,
    unused_since,
)
from gpu_control_plane.ray.service.snapshot import ClusterView, Snapshot
from gpu_control_plane.ray.service.upgrade_plan import NextRoles, UpgradePlan


def creation(s: Snapshot, roles: Roles) -> Iterable[Action]:
    """The pending cluster, unless it exists. In a handover it begins without its workers with cards."""
    if not roles.create or s.named(roles.pending) is not None:
        return
    desired = s.service.spec.ray_cluster_config
    spec, annotations = desired, {}
    if roles.mode is UpgradeMode.HANDOVER and roles.budget is not None:
        annotations = {Annotation.HANDOVER.value: roles.budget.text(), Annotation.APPLIED_SCALE.value: ""}
        spec = replace(
            desired,
            worker_group_specs=tuple(
                with_replicas(group, group, 0, scaled=desired.autoscales) if replica_units(group, s.free) else group
                for group in desired.worker_group_specs
            ),
        )
    elif roles.mode is UpgradeMode.INCREMENTAL:
        groups = tuple(replace(group, replicas=group.min_replicas or 0) for group in desired.worker_group_specs)
        spec = replace(desired, worker_group_specs=groups)
    manifest = cluster_manifest(s.service, roles.pending, s.options, spec=spec, annotations=annotations)
    event = EventRecord(reason=ServiceEvent.CREATED_CLUSTER, note=f"RayCluster {roles.pending}", action="Create")
    yield CreateCluster(manifest=manifest, event=event)


def take_overs(s: Snapshot) -> Iterable[PatchCluster]:
    """Clusters made by another operator, or another release of this one, get the annotations that this one reads."""
    for view in filter(None, (s.active, s.pending)):
        if view.deleting or not is_foreign(s, view):
            continue
        annotations = current_fingerprint(s, view).annotations(s.options)
        if not view.annotation(Annotation.KUBERAY_VERSION).startswith(OWN_VERSIONS):
            # KubeRay's numbers of workers stay until the spec's change.
            annotations[Annotation.APPLIED_SCALE.value] = scale_hash(s.service.spec.ray_cluster_config)
        event = EventRecord(
            reason=ServiceEvent.TOOK_OVER_CLUSTER, note=f"RayCluster {view.name} is looked after by this operator"
        )
        yield _annotated(view, annotations, event)


def refreshes(s: Snapshot, roles: Roles, plan: UpgradePlan, after: NextRoles) -> Iterable[PatchCluster]:
    """Patches of existing clusters: worker groups that were added, numbers of workers, outdated annotations."""
    patched = {patch.cluster.name for patch in plan.patches} if not (after.promoted or after.undone) else set()
    if patched:
        yield from plan.patches
    newest = s.named(after.active if roles.back else after.pending or after.active)
    for view in filter(None, (s.named(after.active), s.named(after.pending))):
        if view.deleting or view.name in patched:
            continue
        follows = view is newest and (roles.mode is not UpgradeMode.HANDOVER or after.promoted or after.undone)
        patch = _refresh(s, view, follows=follows)
        if patch is not None:
            yield patch


def _refresh(s: Snapshot, view: ClusterView, *, follows: bool) -> PatchCluster | None:
    desired, held = s.service.spec.ray_cluster_config, view.cluster.spec
    annotations: dict[str, str | None] = {}
    spec: dict[str, Any] = {}
    event: EventRecord | None = None
    if view.annotation(Annotation.UNUSED_SINCE):
        annotations[Annotation.UNUSED_SINCE.value] = None
    if follows:
        found = match_of(s, view)
        scale_differs = view.annotation(Annotation.APPLIED_SCALE) != scale_hash(desired)
        if found is Match.GROWN or (found is Match.SAME and scale_differs):
            groups = wanted_groups(view.cluster, desired)
            if groups != held.worker_group_specs:
                spec["workerGroupSpecs"] = [msgspec.to_builtins(group) for group in groups]
                event = EventRecord(
                    reason=ServiceEvent.UPDATED_CLUSTER, note=f"workers of {view.name} follow the spec", action="Update"
                )
            annotations[Annotation.APPLIED_SCALE.value] = scale_hash(desired)
            if found is Match.GROWN:
                annotations |= SpecFingerprint.of(desired).annotations(s.options)
        if view.annotation(Annotation.HANDOVER):
            annotations[Annotation.HANDOVER.value] = None
    if not annotations and not spec:
        return None
    body: dict[str, Any] = {"metadata": {"annotations": annotations}}
    return PatchCluster(cluster=view.cluster, body={**body, "spec": spec} if spec else body, event=event)


def unused_since_patches(s: Snapshot, roles: Roles, after: NextRoles) -> Iterable[PatchCluster]:
    """Clusters that have lost their role are annotated with the time, from which the deletion delay counts."""
    for view in s.without_role(after.active, after.pending):
        if not view.deleting and view not in roles.drop and unused_since(view) is None:
            moment = s.now.replace(microsecond=0).isoformat()
            yield _annotated(view, {Annotation.UNUSED_SINCE.value: moment})


def expiries(s: Snapshot, after: NextRoles) -> Iterable[Action]:
    """Clusters without a role are deleted after the deletion delay, so that requests under way are answered."""
    for view in s.without_role(after.active, after.pending):
        since = unused_since(view)
        if since is not None and not view.deleting and since + deletion_delay(s) <= s.now:
            yield deletion(view, "another answers in its place")


def accepted_configurations(s: Snapshot) -> Iterable[PatchCluster]:
    """The configuration that Ray Serve has accepted is kept in an annotation of the cluster."""
    for view in s.clusters:
        if view.accepted and not view.deleting:
            event = EventRecord(
                reason=ServiceEvent.UPDATED_APPLICATIONS, note=f"Ray Serve of {view.name} has its configuration"
            )
            yield _annotated(view, {Annotation.SERVE_CONFIG.value: accepted_annotation(view.accepted, s.now)}, event)


def _annotated(view: ClusterView, annotations: Mapping[str, str], event: EventRecord | None = None) -> PatchCluster:
    return PatchCluster(cluster=view.cluster, body={"metadata": {"annotations": dict(annotations)}}, event=event)


def next_deletion(s: Snapshot, after: NextRoles) -> timedelta | None:
    """How long until the next cluster without a role is to be deleted."""
    left = [
        (unused_since(view) or s.now) + deletion_delay(s) - s.now
        for view in s.without_role(after.active, after.pending)
        if not view.deleting
    ]
    return min(left, default=None)


def deletion(view: ClusterView, why: str) -> Delete:
    event = EventRecord(reason=ServiceEvent.DELETED_CLUSTER, note=f"RayCluster {view.name}: {why}", action="Delete")
    return Delete(item=view.cluster, event=event)
