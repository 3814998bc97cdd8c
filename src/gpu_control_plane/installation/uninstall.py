"""Removes what controllers and agents have left in a cluster, after they have ended.

GPUPools, GPUDevices and their approvals are people's data and stay, unless the CRDs are deleted, too. ClusterPolicies,
NVIDIADrivers and objects of Ray are never deleted: drivers and jobs run by them, perhaps another operator's. Everything
is safe to repeat.

Run as `python -m gpu_control_plane.installation.uninstall`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.agent.node.labelling import feature_labels as labels_of_features
from gpu_control_plane.api import GPUNodeState, GPUPool, nvidia
from gpu_control_plane.api.names import Label
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NodeFeature, discovery_name, feature_name
from gpu_control_plane.api.pod import COMPONENT_LABEL, NAME_LABEL, PRODUCT
from gpu_control_plane.api.ray.names import LEASE as KUBERAY_LEASE
from gpu_control_plane.api.ray.names import Finalizer
from gpu_control_plane.api.ray.view import ANY as ANY_RAY
from gpu_control_plane.installation.crds import INSTALLED, ours
from gpu_control_plane.installation.kuberay_check import may_write
from gpu_control_plane.installation.one_shot import run_job
from gpu_control_plane.installation.pods_ended import await_end
from gpu_control_plane.installation.policies import remove_policies
from gpu_control_plane.kube import Client, Object, Resource, Selection
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.kube.errors import Conflict, Forbidden, NotFound
from gpu_control_plane.kube.lease_watch import TimedLease, active_holder, lease_selection, observe
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.operator.node_cleanup import clean_nodes
from gpu_control_plane.operator.stack.orphan_delete import finish_orphan_deletes
from gpu_control_plane.pools.controller import FINALIZER
from gpu_control_plane.pools.node_taints import plan_taints
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces, kuberay_namespaces

_OURS: Final = f"{NAME_LABEL}={PRODUCT},{COMPONENT_LABEL} in (controller,agent,discovery)"
_NEVER_DELETED: Final[tuple[type[Object], ...]] = (nvidia.StoredClusterPolicy, nvidia.StoredNVIDIADriver, *ANY_RAY)
_KEPT: Final[Mapping[Resource, type[Object]]] = {kind.resource: kind for kind in _NEVER_DELETED}
"""Kinds whose CRD stays as long as there is an object of it."""
_NAMED: Final = 5
"""How many objects a sentence names."""
_RAY_FINALIZERS: Final = frozenset({one.value for one in Finalizer})
_ATTEMPTS: Final = 5
_EXAMPLES: Final = """\b
Examples:
  python -m gpu_control_plane.installation.uninstall                   what our programs have made
  python -m gpu_control_plane.installation.uninstall --feature-labels  nvidia.com/ labels, too
  python -m gpu_control_plane.installation.uninstall --crds            pools and approvals, too
"""

type MergePatch = dict[str, dict[str, Any]]


@click.command("uninstall", epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file.  [default: as kubectl finds it]")
@click.option(
    "--feature-labels", is_flag=True, help="Take the labels of feature discovery off Nodes whose agent wrote them."
)
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Where our programs ran.")
@click.option(
    "--operand-namespace", help="Where the software stack runs; empty: nowhere.  [default: that of --namespace]"
)
@click.option(
    "--nvidia-namespace",
    "nvidia_namespaces",
    multiple=True,
    help="A namespace in which NVIDIA's operator is trusted, beside the usual ones.",
)
@click.option("--ray/--no-ray", default=True, show_default=True, help="Whether our programs looked after Ray.")
@click.option(
    "--ray-watch-namespace",
    "ray_namespaces",
    multiple=True,
    help="A namespace in which they did; may be repeated.  [default: all]",
)
@click.option("--ray-single-namespace", is_flag=True, help="KubeRay may run elsewhere, for other namespaces.")
@click.option(
    "--kuberay-namespace",
    "kuberay_named",
    multiple=True,
    help="A namespace in which KubeRay's operator is trusted, beside the usual ones.",
)
@click.option("--crds", is_flag=True, help="Delete the CRDs, and with them every pool and approval.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    help="Seconds to wait until our programs have ended.",
)
def command(
    *,
    kubeconfig: Path | None,
    feature_labels: bool,
    namespace: str,
    operand_namespace: str | None,
    nvidia_namespaces: tuple[str, ...],
    ray: bool,
    ray_namespaces: tuple[str, ...],
    ray_single_namespace: bool,
    kuberay_named: tuple[str, ...],
    crds: bool,
    timeout: float,
) -> None:
    """Remove what the controllers and agents have left in a cluster. Stop them first: they would write it again."""

    run_job(
        kubeconfig,
        lambda client: clean_up(
            client,
            namespace,
            feature_labels=feature_labels,
            crds=crds,
            timeout=timeout,
            operand_namespace=operand_namespace,
            nvidia_namespaces=nvidia_namespaces,
            ray=ray,
            ray_namespaces=ray_namespaces,
            ray_single_namespace=ray_single_namespace,
            kuberay_named=kuberay_named,
            report=click.echo,
        ),
    )


async def clean_up(
    client: Client,
    namespace: str = DEFAULT_NAMESPACE,
    *,
    feature_labels: bool,
    crds: bool,
    timeout: float,
    operand_namespace: str | None = None,
    nvidia_namespaces: Iterable[str] = (),
    ray: bool = True,
    ray_namespaces: Collection[str] = (),
    ray_single_namespace: bool = False,
    kuberay_named: Iterable[str] = (),
    report: Callable[[str], None],
) -> None:
    """Remove everything; `report` gets a sentence about each step. Operands are in our namespace unless another is
    named; an empty name stands for none. Objects of Ray were looked after everywhere unless namespaces are named."""
    operands = namespace if operand_namespace is None else operand_namespace
    left = await await_end(client, Selection(namespace, labels=_OURS), timeout)
    report(f"{left} of our pods have not ended: what they write from now on stays." if left else "Our programs ended.")
    report(f"Finalizers taken off GPUPools: {await _release_pools(client)}.")
    if ray:
        believed = kuberay_namespaces(kuberay_named, own=namespace)
        for sentence in await _release_rays(client, ray_namespaces or (None,), believed, single=ray_single_namespace):
            report(sentence)
    if operands:
        released = await finish_orphan_deletes(client, operands)
        report(f"DaemonSets let go that were held for their pods: {released}.")
    report(f"Reports deleted: {await _delete_reports(client, namespace)}.")
    report(f"Nodes from which taints of pools were taken off: {await _untaint(client)}.")
    report(f"Nodes whose labels were taken off: {await _unlabel(client, feature_labels=feature_labels)}.")
    trusted = TrustedNamespaces(frozenset({*nvidia_namespaces, operands}), own=namespace)
    report(f"Nodes from which the software stack was taken off: {await clean_nodes(client, trusted)}.")
    # Last, and only now: as long as an agent runs, pods have to be judged.
    report(f"Admission policies removed: {await remove_policies(client, namespace)}.")
    if crds:
        report(f"CRDs deleted: {await _delete_crds(client, report)}.")


async def _release_pools(client: Client) -> int:
    return await _change_all(client, GPUPool, partial(_without_finalizers, {FINALIZER}))


async def _release_rays(
    client: Client, namespaces: Collection[str | None], believed: TrustedNamespaces, *, single: bool
) -> list[str]:
    """What nobody does any more must not keep objects of Ray from being deleted, unless KubeRay's operator does it: one
    in a namespace that users cannot write in, or whose pod may write RayClusters where we looked after them. Whoever
    else holds such a Lease keeps the finalizers of his own namespace.
    """
    now = utc_now()
    try:
        leases = [
            lease
            for place in (namespaces if single else (None,))
            for lease in await client.list(TimedLease, lease_selection(KUBERAY_LEASE, place))
        ]
        active = [holder for lease in leases if (holder := active_holder((observe(lease, now),), now)) is not None]
        operators = {
            place: [
                holder
                for holder in active
                if believed.include(holder.namespace) or await may_write(client, holder, place)
            ]
            for place in namespaces
        }
    except Forbidden as error:
        return [f"Finalizers left on objects of Ray: whether KubeRay's operator runs may not be read. {error}"]
    released = [place for place in namespaces if not operators[place]]
    kept = sorted({holder.namespace for found in operators.values() for holder in found})
    spared = {holder.namespace for holder in active}
    own = sorted(each for each in spared.difference(kept) if not {each, None}.isdisjoint(released))
    count = 0
    for kind in ANY_RAY:
        for place in released:
            count += await _change_all(client, kind, partial(_released_ray, spared), Selection(place))
    return [
        *(f"Finalizers left on objects of Ray: KubeRay's operator runs in {each}. {_otherwise(each)}" for each in kept),
        *(
            f"Finalizers left on objects of Ray in {each}: KubeRay's Lease is held there. {_otherwise(each)}"
            for each in own
        ),
        *([f"Finalizers taken off objects of Ray: {count}."] if released else []),
    ]


def _otherwise(namespace: str) -> str:
    return f"If none runs there: kubectl -n {namespace} delete lease {KUBERAY_LEASE}, and run this again."


def _released_ray(spared: Collection[str], item: Object) -> MergePatch | None:
    return None if item.metadata.namespace in spared else _without_finalizers(_RAY_FINALIZERS, item)


def _without_finalizers(doomed: Collection[str], item: Object) -> MergePatch | None:
    held = [one for one in item.metadata.finalizers if one not in doomed]
    return {"metadata": {"finalizers": held}} if len(held) != len(item.metadata.finalizers) else None


async def _delete_reports(client: Client, namespace: str) -> int:
    ours = (feature_name(""), discovery_name(""))
    features = await _all(client, NodeFeature, Selection(namespace))
    reports = [feature for feature in features if feature.name.startswith(ours)]
    for report in reports:
        await _delete(client, report)
    return len(reports)


async def _untaint(client: Client) -> int:
    """Taints that nobody takes off any more would keep pods away for good."""
    ours = {state.name: state.status.taints for state in await _all(client, GPUNodeState) if state.status.taints}

    def without_taints(node: Node) -> MergePatch | None:
        left = plan_taints(node.spec.taints, ours.get(node.name, ()), ()).on_node
        return {"spec": {"taints": msgspec.to_builtins(left)}} if left != node.spec.taints else None

    return await _change_all(client, Node, without_taints)


async def _unlabel(client: Client, *, feature_labels: bool) -> int:
    """Where the agent does not label, the labels of features are another program's, NVIDIA's perhaps."""
    states = await _all(client, GPUNodeState) if feature_labels else []
    labelled = {state.name for state in states if state.status.agent is not None and state.status.agent.labels}

    def without_labels(node: Node) -> MergePatch | None:
        labels = _written_by_us(node.metadata.labels, feature_labels=node.name in labelled)
        return {"metadata": {"labels": dict.fromkeys(labels)}} if labels else None

    return await _change_all(client, Node, without_labels)


def _written_by_us(labels: Mapping[str, str], *, feature_labels: bool) -> set[str]:
    """The label gpu.present, and, where an agent writes them, those of feature discovery."""
    features = labels_of_features(labels) if feature_labels else {}
    return {*features, *(labels.keys() & {str(Label.GPU_PRESENT)})}


async def _delete_crds(client: Client, report: Callable[[str], None]) -> int:
    """Only those that we installed: another product's kinds of the same name are its own."""
    count = 0
    for definition in INSTALLED:
        try:
            found = await client.get(CustomResourceDefinition, definition.name)
        except NotFound:
            continue
        if not ours(found):
            continue
        if left := await _kept(client, definition.resource):
            more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
            names = ", ".join(left[:_NAMED]) + more
            report(f"{definition.name} stays: {names} would go with it. Delete it first if it is not needed.")
            continue
        await _delete(client, found)
        count += 1
    return count


async def _kept(client: Client, resource: Resource) -> list[str]:
    """The existing objects of a kind that is never deleted; none for every other kind."""
    stored = _KEPT.get(resource)
    return [str(thing.key) for thing in await _all(client, stored)] if stored else []


async def _change_all[T: Object](
    client: Client, kind: type[T], patch_of: Callable[[T], MergePatch | None], selection: Selection | None = None
) -> int:
    """Patch every object of a kind for which there is a patch; how many that were."""
    return sum([await _change(client, found, patch_of) for found in await _all(client, kind, selection)])


async def _change[T: Object](client: Client, found: T, patch_of: Callable[[T], MergePatch | None]) -> bool:
    """Others write the object as well, the kubelet its Node: a conflict is tried again with what it is then. One that
    has gone needs no change."""
    meta = found.metadata
    for attempt in range(1, _ATTEMPTS + 1):
        if (patch := patch_of(found)) is None:
            return False
        version = found.metadata.resource_version
        try:
            await client.patch(type(found), meta.name, patch, namespace=meta.namespace, resource_version=version)
        except NotFound:
            return False
        except Conflict:
            if attempt == _ATTEMPTS:
                raise
            latest = await client.list(type(found), Selection(meta.namespace, fields=f"metadata.name={meta.name}"))
            if not latest:
                return False
            found = latest[0]
        else:
            return True
    return False


async def _all[T: Object](client: Client, kind: type[T], selection: Selection | None = None) -> list[T]:
    """Every object of a kind; none where the kind itself is not there."""
    try:
        return await client.list(kind, selection or Selection())
    except NotFound:
        return []


async def _delete(client: Client, doomed: Object) -> None:
    try:
        await client.delete(type(doomed), doomed.name, doomed.metadata.namespace, uid=doomed.metadata.uid)
    except NotFound:
        return


if __name__ == "__main__":
    command()
