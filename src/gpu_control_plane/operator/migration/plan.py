"""What would change if this operator took over from NVIDIA's. Pure: two moments in, differences out."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver, UnreadableSpec
from gpu_control_plane.kube.fields import OpenEnum
from gpu_control_plane.operator.migration.desired import Wanted
from gpu_control_plane.operator.migration.differences import differences
from gpu_control_plane.operator.migration.installation import FullDaemonSet, Installation
from gpu_control_plane.operator.stack.drift import content_drifts
from gpu_control_plane.operator.stack.policies import problem_of
from gpu_control_plane.operator.views import controller_of

_QUIET: Final = frozenset({UpgradeState.NONE, UpgradeState.DONE, UpgradeState.FAILED})
_OUR_NAMESPACE: Final = "d8-gpu-operator"
_OPENSHIFT: Final = "node.openshift.io/"
_ON_DELETE: Final = "OnDelete"


class Action(OpenEnum):
    """What happens to a DaemonSet."""

    CREATED = "created", "It does not exist yet."
    CHANGED = "changed", "It is rewritten."
    RECREATED = "recreated", "It is deleted and made again, since something in it cannot be changed."
    KEPT = "kept", "It is as it should be."
    REMOVED = "removed", "Nothing asks for it."
    SEPARATE = "separate", "It belongs to an NVIDIADriver, and is looked after with that one."


class Restart(OpenEnum):
    """What happens to the pods of a DaemonSet."""

    NONE = "none", "they stay"
    ROLLING = "rolling", "replaced, a few at a time"
    UPGRADE = "upgrade", "replaced by a driver upgrade, node after node"
    AT_ONCE = "at-once", "all go at once, and come back"
    BY_HAND = "by-hand", "they stay until somebody deletes them"


class FieldNote(msgspec.Struct, frozen=True, rename="camel"):
    """A field of an object that changes nothing here."""

    object: str
    path: str
    verdict: str


class LabelChange(msgspec.Struct, frozen=True, rename="camel"):
    """The same change of a label on several nodes; None stands for its absence."""

    key: str
    before: str | None
    after: str | None
    nodes: tuple[str, ...]


class DaemonSetChange(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A DaemonSet and what would become of it."""

    name: str
    action: Action
    restart: Restart = Restart.NONE
    pods: int = 0
    differences: tuple[str, ...] = ()


class Operator(msgspec.Struct, frozen=True, rename="camel"):
    """A Deployment of NVIDIA's operator."""

    namespace: str
    name: str
    replicas: int
    images: dict[str, str]


class Plan(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What would change, and what has to be done before."""

    policy: str | None
    namespace: str
    holder: str | None
    """Who of NVIDIA's operator is in charge; None when nobody is."""
    ours: str | None
    """Who leads among our controllers; None when they do not run."""
    operators: tuple[Operator, ...]
    todo: tuple[str, ...]
    fields: tuple[FieldNote, ...]
    labels: tuple[LabelChange, ...]
    daemonsets: tuple[DaemonSetChange, ...]
    compared: bool
    """Whether DaemonSets could be compared: not without a ClusterPolicy that can be read."""
    problems: tuple[str, ...] = ()


def compare(found: Installation, wanted: Wanted | None) -> Plan:
    """Hold what is there against what this operator would have."""
    spec, unreadable = _spec(found.policy)
    changes = tuple(_daemonsets(found, wanted, spec)) if wanted is not None else ()
    return Plan(
        policy=found.policy.name if found.policy else None,
        namespace=found.namespace,
        holder=found.rival.holder if found.rival else None,
        ours=found.ours.holder if found.ours else None,
        operators=tuple(
            Operator(one.metadata.namespace or "", one.name, one.replicas, one.images) for one in found.deployments
        ),
        todo=tuple(_todo(found, changes)),
        fields=tuple(_fields((*found.policies, *found.drivers))),
        labels=tuple(_labels(found, spec)),
        daemonsets=changes,
        compared=wanted is not None,
        problems=(*unreadable, *(wanted.problems if wanted else ()), *_obstacles(found)),
    )


def _spec(policy: StoredClusterPolicy | None) -> tuple[ClusterPolicySpec | None, tuple[str, ...]]:
    if policy is None:
        return None, ()
    try:
        spec = policy.read().spec
    except UnreadableSpec as error:
        return None, (f"ClusterPolicy {policy.name} cannot be read: {error}",)
    contradiction = problem_of(spec)
    return spec, (f"ClusterPolicy {policy.name}: {contradiction}",) if contradiction else ()


def _fields(objects: Iterable[StoredClusterPolicy | StoredNVIDIADriver]) -> Iterable[FieldNote]:
    for one in objects:
        try:
            read = one.read()
        except UnreadableSpec:
            continue
        name = f"{one.resource.kind}/{one.name}"
        yield from (FieldNote(name, path, "unknown") for path in read.unknown)
        yield from (FieldNote(name, path, "without effect") for path in read.ineffective)


def _labels(found: Installation, spec: ClusterPolicySpec | None) -> Iterable[LabelChange]:
    """Changes of labels as the production code decides them, without what agents may add to it later."""
    from gpu_control_plane.operator.labelling.decide import Subject, decide, wish_of  # noqa: PLC0415

    if spec is None:
        return
    wish = wish_of(spec)
    nodes: dict[tuple[str, str | None, str | None], list[str]] = {}
    for node in found.nodes:
        for key, after in decide(Subject(node), wish).labels.items():
            nodes.setdefault((key, node.metadata.labels.get(key), after), []).append(node.name)
    for key, before, after in sorted(nodes, key=str):
        yield LabelChange(key, before, after, tuple(sorted(nodes[key, before, after])))


def _daemonsets(found: Installation, wanted: Wanted, spec: ClusterPolicySpec | None) -> Iterable[DaemonSetChange]:
    held = {one.name: one for one in found.daemonsets}
    manifests: dict[str, Any] = {
        one["metadata"]["name"]: one for one in wanted.manifests if one.get("kind") == "DaemonSet"
    }
    upgrades = bool(spec and spec.driver.upgrade_policy and spec.driver.upgrade_policy.auto_upgrade)
    for name in sorted({*held, *manifests}):
        existing, manifest = held.get(name), manifests.get(name)
        if existing is None:
            yield DaemonSetChange(name=name, action=Action.CREATED)
        elif manifest is not None:
            yield _changed(existing, manifest, upgrades=upgrades)
        elif (owner := _owner_kind(existing)) == StoredClusterPolicy.resource.kind:
            yield DaemonSetChange(name=name, action=Action.REMOVED, pods=existing.pods)
        elif owner == StoredNVIDIADriver.resource.kind:
            yield DaemonSetChange(name=name, action=Action.SEPARATE)


def _owner_kind(existing: FullDaemonSet) -> str:
    owner = controller_of(existing)
    return owner.kind if owner is not None else ""


def _changed(existing: FullDaemonSet, manifest: Any, *, upgrades: bool) -> DaemonSetChange:
    """Compared by what decides about drift in production; the paths are for people."""
    if not content_drifts(manifest, existing):
        return DaemonSetChange(name=existing.name, action=Action.KEPT, pods=existing.pods)
    anew = _part_drifts("selector", manifest, existing)
    if not _part_drifts("template", manifest, existing):
        restart = Restart.NONE
    elif manifest["spec"].get("updateStrategy", {}).get("type") == _ON_DELETE:
        restart = Restart.UPGRADE if upgrades else Restart.BY_HAND
    else:
        restart = Restart.AT_ONCE if anew else Restart.ROLLING
    return DaemonSetChange(
        name=existing.name,
        action=Action.RECREATED if anew else Action.CHANGED,
        restart=restart,
        pods=existing.pods,
        differences=tuple(differences(manifest["spec"], existing.spec, "spec")) or ("spec",),
    )


def _part_drifts(part: str, manifest: Any, existing: FullDaemonSet) -> bool:
    """Whether this part of the spec is another than it should be, whatever the rest is."""
    spec = dict(existing.spec or {})
    spec.pop(part, None)
    if part in manifest["spec"]:
        spec[part] = manifest["spec"][part]
    return content_drifts({**manifest, "spec": spec}, existing)


def _obstacles(found: Installation) -> Iterable[str]:
    """What the comparison cannot tell."""
    if any(label.startswith(_OPENSHIFT) for node in found.nodes for label in node.metadata.labels):
        yield "This is OpenShift: DaemonSets were compared as on any other Kubernetes; the driver's will differ more."


def _todo(found: Installation, changes: Iterable[DaemonSetChange]) -> Iterable[str]:
    """What has to be done before the change of hands, in order."""
    if found.ours is None:
        yield "Install this operator: helm install with operator.enabled=true. It waits while NVIDIA's is in charge."
    if found.policy is None:
        yield "There is no ClusterPolicy: nothing is deployed before there is one."
    if found.policy is not None and found.namespace != _OUR_NAMESPACE:
        yield f"Set operator.namespace={found.namespace}, where the operands are: elsewhere they would be made anew."
    images = {name: image for one in found.deployments for name, image in one.images.items()}
    if images:
        yield f"Set operator.images, since NVIDIA's operator names these itself: {', '.join(sorted(images))}."
    busy = sorted(
        node.name for node in found.nodes if node.metadata.labels.get(NodeLabel.UPGRADE_STATE, "") not in _QUIET
    )
    if busy:
        yield f"Wait for the driver upgrade that is under way on {_named(busy)}."
    if len(found.deployments) > 1:
        places = ", ".join(sorted(one.metadata.namespace or "" for one in found.deployments))
        yield f"NVIDIA's operator is installed more than once ({places}): choose with --namespace."
    if any(change.restart is Restart.UPGRADE for change in changes):
        yield (
            "Decide when drivers restart: with driver.upgradePolicy.autoUpgrade the changed driver is rolled out node "
            "after node, right after the take-over. Set it to false first to choose the moment yourself."
        )


def _named(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
