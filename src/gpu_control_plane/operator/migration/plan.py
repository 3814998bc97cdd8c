"""What would change if this operator took over from NVIDIA's. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver, UnreadableSpec
from gpu_control_plane.operator.cluster_policy import parse_active_policy
from gpu_control_plane.operator.gpu_cluster import two_masters
from gpu_control_plane.operator.labelling.decide import label_spec_of
from gpu_control_plane.operator.migration.daemonset_changes import DaemonSetChange, PodRestart, daemonset_changes
from gpu_control_plane.operator.migration.desired import DesiredStack
from gpu_control_plane.operator.migration.installation import Installation
from gpu_control_plane.operator.migration.label_changes import KeyChange, key_changes
from gpu_control_plane.operator.stack.manifest import on_delete

_AT_REST: Final = frozenset({UpgradeState.NONE, UpgradeState.DONE, UpgradeState.FAILED})
_OPENSHIFT: Final = "node.openshift.io/"


class FieldNote(msgspec.Struct, frozen=True, rename="camel"):
    """A field of an object that has no effect here."""

    object: str
    path: str
    verdict: str


class OperatorDeployment(msgspec.Struct, frozen=True, rename="camel"):
    """A Deployment of NVIDIA's operator."""

    namespace: str
    name: str
    replicas: int
    images: dict[str, str]


class MigrationPlan(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What would change, and what has to be done before."""

    policy: str | None
    drivers: tuple[str, ...]
    """NVIDIADrivers, whether or not the ClusterPolicy uses them."""
    namespace: str
    holder: str | None
    """The active replica of NVIDIA's operator; None if there is none."""
    ours: str | None
    """The leader of our controllers; None if they do not run."""
    operators: tuple[OperatorDeployment, ...]
    problems: tuple[str, ...]
    """Why a take-over would do harm, and what to change."""
    remarks: tuple[str, ...]
    """What this plan does not cover."""
    todo: tuple[str, ...]
    fields: tuple[FieldNote, ...]
    labels: tuple[KeyChange, ...]
    annotations: tuple[KeyChange, ...]
    daemonsets: tuple[DaemonSetChange, ...]
    compared: bool
    """Whether labels and DaemonSets were compared: not without a policy that can be carried out."""


def plan_migration(found: Installation, wanted: DesiredStack | None) -> MigrationPlan:
    """Compare what is installed with what this operator would apply."""
    changes = tuple(daemonset_changes(found, wanted)) if wanted is not None else ()
    after = wanted.nodes if wanted is not None else found.nodes
    return MigrationPlan(
        policy=found.policy.name if found.policy else None,
        drivers=tuple(sorted(one.name for one in found.drivers)),
        namespace=found.namespace,
        holder=found.nvidia_holder.holder if found.nvidia_holder else None,
        ours=found.our_holder.holder if found.our_holder else None,
        operators=tuple(
            OperatorDeployment(one.metadata.namespace or "", one.name, one.replicas, one.images)
            for one in found.deployments
        ),
        problems=(*_problems(found, wanted), *_losses(found, wanted, changes)),
        remarks=tuple(_remarks(found)),
        todo=tuple(_todo(found, changes)),
        fields=tuple(_fields((*found.policies, *found.drivers))),
        labels=key_changes(found.nodes, after, lambda node: node.metadata.labels),
        annotations=key_changes(found.nodes, after, lambda node: node.metadata.annotations),
        daemonsets=changes,
        compared=wanted is not None,
    )


def _problems(found: Installation, wanted: DesiredStack | None) -> Iterable[str]:
    active, release = parse_active_policy(found.policies), found.release
    if active is not None and active.problem:
        unreadable = "" if active.spec is not None else " cannot be read"
        yield f"ClusterPolicy {active.policy.name}{unreadable}: {active.problem}"
    if wanted is not None:
        yield from wanted.problems
    if release is not None and not release.operator:
        yield "This operator is installed with operator.enabled=false: nothing would manage the stack."
        return
    for cluster in found.gpu_clusters:
        yield f"{two_masters(cluster.name)}."
    yield from _second_sets(found)
    for place in sorted(_untrusted(found)):
        yield (
            f"NVIDIA's operator is in {place}, where this operator does not believe its Lease: both would write. Set "
            f"controller.nvidiaNamespaces={{{place}}} (helm upgrade)."
        )
    if release is not None and release.namespace != found.namespace and found.operands:
        yield (
            f"This operator would have operands in {release.namespace}, and they are in {found.namespace}: each node "
            f"would get a second driver. Set operator.namespace={found.namespace} (helm upgrade)."
        )


def _second_sets(found: Installation) -> Iterable[str]:
    """Operands beside those that would be taken over: another operator keeps them, or has left them."""
    for place in sorted({one.metadata.namespace or "" for one in found.elsewhere}):
        names = sorted(one.name for one in found.elsewhere if one.metadata.namespace == place)
        yield (
            f"There are more operands in {place}: {_named(names)}. Each node would have two drivers or two device "
            "plugins. Stop what keeps them, and remove them when their nodes are free, or take over there: "
            f"--namespace {place}."
        )


def _untrusted(found: Installation) -> set[str]:
    """Namespaces of NVIDIA's operator in which our controllers, as they are installed, do not look for it."""
    if found.release is None:
        return set()
    holder = {found.nvidia_holder.namespace} if found.nvidia_holder is not None else set()
    places = holder | {one.metadata.namespace or "" for one in found.deployments}
    return {place for place in places if not found.release.trusted.include(place)}


def _losses(found: Installation, wanted: DesiredStack | None, changes: Iterable[DaemonSetChange]) -> Iterable[str]:
    """Drivers that would be unloaded although the policy asks for drivers: pods that use a card would lose it."""
    if wanted is None or wanted.policy is None or not label_spec_of(wanted.policy).driver_enabled:
        return
    drivers = {one.name for one in found.daemonsets if on_delete(one.spec or {})}
    for change in changes:
        if change.restart is PodRestart.GONE and change.pods and change.name in drivers:
            yield (
                f"The driver of DaemonSet {change.name} would be unloaded on {change.pods} nodes, under whatever uses"
                " its cards. Let NVIDIA's operator finish what it has begun there, or remove the DaemonSet when its"
                " nodes are free."
            )


def _remarks(found: Installation) -> Iterable[str]:
    if any(label.startswith(_OPENSHIFT) for node in found.nodes for label in node.metadata.labels):
        yield "This is OpenShift: DaemonSets were compared as on any other Kubernetes; the driver's will differ more."


def _fields(objects: Iterable[StoredClusterPolicy | StoredNVIDIADriver]) -> Iterable[FieldNote]:
    for one in objects:
        try:
            read = one.read()
        except UnreadableSpec:
            continue
        name = f"{one.resource.kind}/{one.name}"
        yield from (FieldNote(name, path, "unknown") for path in read.unknown)
        yield from (FieldNote(name, path, "without effect") for path in read.ineffective)


def _todo(found: Installation, changes: Iterable[DaemonSetChange]) -> Iterable[str]:
    """What has to be done before the switch, in order."""
    yield from _our_release(found)
    if found.policy is None:
        yield "There is no ClusterPolicy: nothing but NVIDIADrivers is deployed before there is one."
    busy = sorted(
        node.name for node in found.nodes if node.metadata.labels.get(NodeLabel.UPGRADE_STATE, "") not in _AT_REST
    )
    if busy:
        yield f"Wait for the driver upgrade that is in progress on {_named(busy)}."
    if len(found.deployments) > 1:
        places = ", ".join(sorted(one.metadata.namespace or "" for one in found.deployments))
        yield f"NVIDIA's operator is installed more than once ({places}): choose with --namespace."
    if any(change.restart is PodRestart.UPGRADE for change in changes):
        yield (
            "Decide when drivers restart: with upgradePolicy.autoUpgrade the changed driver is rolled out node after "
            "node, right after the take-over. Set it to false first to choose the moment yourself."
        )


def _our_release(found: Installation) -> Iterable[str]:
    """What has to be done about our own release. Settings of controllers that Helm has not installed are not known."""
    release, elsewhere = found.release, found.namespace != found.own_namespace and found.operands
    if release is None and found.our_holder is None:
        yield (
            f"Install this operator, best where the operands are: helm install -n {found.namespace}, with "
            f"operator.enabled=true. In any other namespace it needs operator.namespace={found.namespace}, or it makes "
            "operands anew. It waits while NVIDIA's is active."
        )
    elif found.our_holder is None:
        yield f"This operator is installed, but does not run: see why with kubectl -n {found.own_namespace} get pods."
    elif release is None and elsewhere:
        yield f"Set operator.namespace={found.namespace}, where the operands are: elsewhere they would be made anew."
    theirs = {name for one in found.deployments for name in one.images}
    missing = sorted(theirs - (release.images.keys() if release is not None else set()))
    if missing:
        yield f"Set operator.images, since NVIDIA's operator names these itself: {', '.join(missing)}."


def _named(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
