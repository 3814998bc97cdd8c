"""Another operator in whose place ours works: its Leases that are trusted, who holds them, and its Deployment."""

import re
from collections.abc import Collection
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import LEASE as NVIDIA_LEASE
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Client, Selection
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.lease_watch import LeaseHolder, TimedLease, lease_selection, observe
from gpu_control_plane.kube.objects import controller_of
from gpu_control_plane.migration.deployment import Deployment, ReplicaSet
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces

OUR_LEASE: Final = "gpu-control-plane"
"""Name of the Lease that our controllers hold."""
REPLICAS_BEFORE: Final = "gpu.deckhouse.io/replicas-before-take-over"
"""Annotation of the Deployment of another operator: how many replicas it had."""
TAKEN_FROM: Final = "gpu.deckhouse.io/taken-from"
"""Beside it: the Lease of that operator; NVIDIA's where it is not there."""
_POD_NAME: Final = re.compile("[a-z0-9]([-.a-z0-9]*[a-z0-9])?")


class OtherOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator that ours takes the place of, as a cluster shows it."""

    words: str
    """How people call it."""
    lease: str
    labels: tuple[str, ...]
    """Selectors of its Deployment, by the labels of its chart."""
    usual: frozenset[str]
    """Namespaces in which it is believed without being named."""

    def trusted(self, own: str, more: Collection[str] = ()) -> TrustedNamespaces:
        return TrustedNamespaces(frozenset(more), own=own, usual=self.usual)


def our_lease(namespace: str) -> Selection:
    """The Lease of our controllers that run in `namespace`."""
    return Selection(namespace, fields=f"metadata.name={OUR_LEASE}")


def trusted_leases(
    leases: list[TimedLease], trusted: TrustedNamespaces, named: Collection[str] = ()
) -> list[TimedLease]:
    """The Leases of another operator: those of trusted namespaces and of those that were named. If there is none, any:
    it may run where our operator was not told to look, and a person reads who holds it before anything is changed."""
    known = [one for one in leases if trusted.include(one.metadata.namespace) or one.metadata.namespace in named]
    return known or leases


def current_holder(leases: list[TimedLease], now: datetime) -> LeaseHolder | None:
    """The holder of one of these Leases at this moment; unlike `active_holder` without a grace period."""
    seen = [observe(lease, now) for lease in leases if lease.holder]
    held = [
        LeaseHolder(one.lease.metadata.namespace or "", one.lease.holder, one.ends)
        for one in seen
        if one.ends is not None and one.ends > now
    ]
    return max(held, key=lambda one: one.until, default=None)


async def operator_deployments(
    client: Client,
    own_namespace: str,
    namespace: str | None = None,
    leases: list[TimedLease] | None = None,
    *,
    what: OtherOperator,
) -> list[Deployment]:
    """The Deployments of another operator: found by the holder of its Lease, else by the labels of its chart, else by
    the annotation that a take-over has written. Anybody may label a Deployment of their own so: where there is one in a
    trusted namespace, no other counts."""
    trusted = what.trusted(own_namespace, {namespace or ""})
    held = leases
    if held is None:
        held = trusted_leases(await client.list(TimedLease, lease_selection(what.lease)), trusted)
    wanted = (lease for lease in held if namespace in (None, lease.metadata.namespace))
    found = [one for lease in wanted if (one := await _deployment_of(client, lease)) is not None]
    for label in what.labels if not found else ():
        found += await client.list(Deployment, Selection(namespace, labels=label))
    if not found:
        everything = await client.list(Deployment, Selection(namespace))
        found = [one for one in everything if one.metadata.annotations.get(TAKEN_FROM, NVIDIA_LEASE) == what.lease]
        found = [one for one in found if REPLICAS_BEFORE in one.metadata.annotations]
    by_key = {one.key: one for one in found}
    keys = [key for key in by_key if trusted.include(key.namespace)] or by_key
    return [by_key[key] for key in sorted(keys)]


async def holder_pod(client: Client, lease: TimedLease) -> Pod | None:
    """The pod that holds a Lease: the holder's identity begins with the pod's name."""
    name = lease.holder.partition("_")[0]
    if not _POD_NAME.fullmatch(name):
        return None
    try:
        return await client.get(Pod, name, lease.metadata.namespace)
    except NotFound:
        return None


async def _deployment_of(client: Client, lease: TimedLease) -> Deployment | None:
    """The Deployment of the pod that holds a Lease."""
    namespace = lease.metadata.namespace
    pod = await holder_pod(client, lease)
    owner = controller_of(pod) if pod is not None else None
    if owner is None or owner.kind != ReplicaSet.resource.kind:
        return None
    try:
        above = controller_of(await client.get(ReplicaSet, owner.name, namespace))
        if above is None or above.kind != Deployment.resource.kind:
            return None
        return await client.get(Deployment, above.name, namespace)
    except NotFound:
        return None
