"""What would happen to each DaemonSet and to its pods, by the same functions that decide in production. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube.fields import OpenEnum
from gpu_control_plane.kube.objects import controller_of
from gpu_control_plane.operator.driver_pods import of_cluster_policy
from gpu_control_plane.operator.drivers.ownership_index import upgrades_automatically
from gpu_control_plane.operator.drivers.predicates import owner_uid
from gpu_control_plane.operator.drivers.prune import outdated_daemonsets
from gpu_control_plane.operator.labelling.decide import label_spec_of
from gpu_control_plane.operator.migration.desired import DesiredDriver, DesiredStack
from gpu_control_plane.operator.migration.differences import differences
from gpu_control_plane.operator.migration.installation import FullDaemonSet, Installation
from gpu_control_plane.operator.node_facts import is_gpu_node
from gpu_control_plane.operator.stack.daemonset_readiness import tolerations_of
from gpu_control_plane.operator.stack.drift import content_drifts, with_live_selector
from gpu_control_plane.operator.stack.manifest import Manifest, on_delete
from gpu_control_plane.operator.stack.prune import PruneInput, orphans_pods, prune_input, should_delete
from gpu_control_plane.operator.stack.readiness import schedulable_nodes
from gpu_control_plane.operator.views import DaemonSet


class DaemonSetAction(OpenEnum):
    """What would happen to a DaemonSet."""

    CREATED = "created", "It does not exist yet."
    CHANGED = "changed", "It is rewritten."
    RECREATED = "recreated", "It is deleted and made again, since something in it cannot be changed."
    KEPT = "kept", "It stays as it is."
    REMOVED = "removed", "Nothing asks for it, or another one takes its place."


class PodRestart(OpenEnum):
    """What would happen to the pods of a DaemonSet."""

    NONE = "none", "they stay"
    ROLLING = "rolling", "replaced, a few at a time"
    UPGRADE = "upgrade", "replaced by a driver upgrade, node after node"
    AT_ONCE = "at-once", "all go at once, and come back"
    BY_HAND = "by-hand", "they stay until they are deleted"
    GONE = "gone", "they go"


class DaemonSetChange(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A DaemonSet and what would happen to it."""

    name: str
    action: DaemonSetAction
    owner: str
    """The ClusterPolicy or the NVIDIADriver that asks for it, or asked."""
    restart: PodRestart = PodRestart.NONE
    pods: int = 0
    """How many nodes have a pod of it now, or should have one."""
    pods_after: int = 0
    """How many would."""
    differences: tuple[str, ...] = ()


def daemonset_changes(found: Installation, wanted: DesiredStack) -> Iterator[DaemonSetChange]:
    """Every DaemonSet that a ClusterPolicy or an NVIDIADriver asks for or has asked for, by name."""
    changes = [*_policy_changes(found, wanted), *_drivers_changes(found, wanted)]
    yield from sorted(changes, key=lambda change: change.name)


def _policy_changes(found: Installation, wanted: DesiredStack) -> Iterator[DaemonSetChange]:
    policy = found.policy
    if policy is None or wanted.policy is None:
        return
    owner = f"{policy.resource.kind}/{policy.name}"
    upgrades = label_spec_of(wanted.policy).upgrades
    manifests = _daemonsets(manifest for state in wanted.states for manifest in state.manifests)
    held = {one.name: one for one in found.daemonsets}
    yield from _desired_changes(manifests, held, wanted, owner=owner, upgrades=upgrades)
    asked = _prune_input(found, wanted)
    for one in found.daemonsets:
        if one.name in manifests or not _is_owner(policy, one):
            continue
        if not should_delete(one, asked):
            yield DaemonSetChange(
                name=one.name, action=DaemonSetAction.KEPT, owner=owner, pods=one.pods, pods_after=one.pods
            )
        else:
            yield _removed(
                one, owner, orphans=orphans_pods(one, asked), upgrades=upgrades or wanted.drivers is not None
            )


def _drivers_changes(found: Installation, wanted: DesiredStack) -> Iterator[DaemonSetChange]:
    held = {one.name: one for one in found.daemonsets}
    if wanted.drivers is None:
        upgrades = wanted.policy is not None and label_spec_of(wanted.policy).upgrades
        for one in found.daemonsets:
            if owner_uid(one):
                yield _removed(one, _owner_name(one), orphans=True, upgrades=upgrades)
        return
    for part in wanted.drivers:
        yield from _driver_changes(part, held, wanted)


def _driver_changes(
    part: DesiredDriver, held: Mapping[str, FullDaemonSet], wanted: DesiredStack
) -> Iterator[DaemonSetChange]:
    owner = f"NVIDIADriver/{part.driver.name}"
    upgrades = upgrades_automatically(part.driver.spec)
    manifests = _daemonsets(part.manifests)
    yield from _desired_changes(manifests, held, wanted, owner=owner, upgrades=upgrades)
    own = [one for one in held.values() if owner_uid(one) == part.driver.uid and one.name not in manifests]
    views = [msgspec.convert(msgspec.to_builtins(one), DaemonSet) for one in own]
    going = {} if part.problem else {one.name: one for one in outdated_daemonsets(views, part.manifests, part.nodes)}
    for one in own:
        if one.name in going:
            yield _removed(one, owner, orphans=going[one.name].orphan, upgrades=upgrades)
        else:
            yield DaemonSetChange(
                name=one.name, action=DaemonSetAction.KEPT, owner=owner, pods=one.pods, pods_after=one.pods
            )


def _prune_input(found: Installation, wanted: DesiredStack) -> PruneInput:
    assert found.policy is not None  # noqa: S101 - the caller checked both
    assert wanted.policy is not None  # noqa: S101
    held = {one.name: one for one in found.daemonsets}

    def unneeded(name: str, state: str) -> bool:
        served = _served(held[name].spec or {}, wanted)
        successors = (
            manifest for one in wanted.states if one.state == state for manifest in _daemonsets(one.manifests).values()
        )
        return not held[name].pods or any(served & _served(manifest["spec"], wanted) for manifest in successors)

    return prune_input(
        found.policy.metadata.uid,
        wanted.policy,
        wanted.states,
        policy_drivers=any(of_cluster_policy(pod) for pod in found.driver_pods),
        cards=any(is_gpu_node(node.metadata.labels) for node in wanted.nodes),
        unneeded=unneeded,
    )


def _desired_changes(
    manifests: Mapping[str, Manifest],
    held: Mapping[str, FullDaemonSet],
    wanted: DesiredStack,
    *,
    owner: str,
    upgrades: bool,
) -> Iterator[DaemonSetChange]:
    for name, manifest in manifests.items():
        existing, after = held.get(name), len(_served(manifest["spec"], wanted))
        if existing is None:
            yield DaemonSetChange(name=name, action=DaemonSetAction.CREATED, owner=owner, pods_after=after)
            continue
        action, restart, paths = _changed(existing, manifest, upgrades=upgrades)
        yield DaemonSetChange(
            name=name,
            action=action,
            owner=owner,
            restart=restart,
            pods=existing.pods,
            pods_after=after,
            differences=paths,
        )


def _changed(
    existing: FullDaemonSet, manifest: Manifest, *, upgrades: bool
) -> tuple[DaemonSetAction, PodRestart, tuple[str, ...]]:
    """Compared by the function that finds drift in production; the paths are for people."""
    manifest = with_live_selector(manifest, existing)
    if not content_drifts(manifest, existing):
        return DaemonSetAction.KEPT, PodRestart.NONE, ()
    anew = _part_drifts("selector", manifest, existing)
    if not _part_drifts("template", manifest, existing):
        restart = PodRestart.NONE
    elif on_delete(manifest["spec"]):
        restart = PodRestart.UPGRADE if upgrades else PodRestart.BY_HAND
    else:
        restart = PodRestart.AT_ONCE if anew else PodRestart.ROLLING
    paths = tuple(differences(manifest["spec"], existing.spec, "spec")) or ("spec",)
    return DaemonSetAction.RECREATED if anew else DaemonSetAction.CHANGED, restart, paths


def _removed(existing: FullDaemonSet, owner: str, *, orphans: bool, upgrades: bool) -> DaemonSetChange:
    restart = (PodRestart.UPGRADE if upgrades else PodRestart.BY_HAND) if orphans else PodRestart.GONE
    return DaemonSetChange(
        name=existing.name, action=DaemonSetAction.REMOVED, owner=owner, restart=restart, pods=existing.pods
    )


def _part_drifts(part: str, manifest: Manifest, existing: FullDaemonSet) -> bool:
    """Whether this part of the spec differs, whatever the rest is."""
    spec = dict(existing.spec or {})
    spec.pop(part, None)
    if part in manifest["spec"]:
        spec[part] = manifest["spec"][part]
    return content_drifts({**manifest, "spec": spec}, existing)


def _served(spec: Mapping[str, Any], wanted: DesiredStack) -> set[str]:
    """Names of the nodes that get a pod of a DaemonSet with this spec."""
    pod = spec.get("template", {}).get("spec", {})
    return set(schedulable_nodes(pod.get("nodeSelector", {}), tolerations_of(pod), wanted.nodes))


def _daemonsets(manifests: Iterable[Manifest]) -> dict[str, Manifest]:
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] == "DaemonSet"}


def _is_owner(policy: StoredClusterPolicy, existing: FullDaemonSet) -> bool:
    owner = controller_of(existing)
    return owner is not None and owner.uid == policy.metadata.uid


def _owner_name(existing: FullDaemonSet) -> str:
    owner = controller_of(existing)
    return f"{owner.kind}/{owner.name}" if owner is not None else ""
