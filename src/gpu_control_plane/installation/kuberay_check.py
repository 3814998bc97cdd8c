"""Refuses to install an operator of Ray beside a KubeRay that it would not believe to be there: both would write.

Ours writes nothing where it sees KubeRay's Lease in a namespace that users cannot write in, or that the values name.
The chart of KubeRay lands in `default` if no namespace is named.

Whoever may write a Lease could keep this release from being installed or upgraded. So the holder has to be a pod whose
ServiceAccount may write RayClusters of all namespaces: nobody gives himself that right in a namespace of his own.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

import msgspec

from gpu_control_plane.api.ray.names import GROUP, LEASE
from gpu_control_plane.kube.access_review import Right, SubjectAccessReview, service_account, spec_of
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import KubeError, NotFound
from gpu_control_plane.kube.lease_watch import LeaseHolder, TimedLease, active_holder, lease_selection, observe
from gpu_control_plane.kube.objects import Object, Resource
from gpu_control_plane.rules.trusted_namespaces import kuberay_namespaces


class UnbelievedKubeRay(KubeError):
    """KubeRay's operator is active where ours would not look for it; the message says what to set."""


class _HolderSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    service_account_name: str = "default"


class _Holder(Object, frozen=True):
    """The pod that holds a Lease."""

    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    spec: _HolderSpec = _HolderSpec()


async def check_kuberay(client: Client, own_namespace: str, named: Iterable[str], now: datetime) -> list[str]:
    """Raise `UnbelievedKubeRay` if there is one; a sentence about each Lease that nothing shows to be KubeRay's."""
    trusted = kuberay_namespaces(named, own=own_namespace)
    sentences = []
    for lease in await client.list(TimedLease, lease_selection(LEASE)):
        if trusted.include(lease.metadata.namespace):
            continue
        holder = active_holder((observe(lease, now),), now)
        if holder is None:
            continue
        if await may_write(client, holder):
            raise UnbelievedKubeRay(_refusal(holder.namespace))
        sentences.append(
            f"lease {holder.namespace}/{LEASE}: not believed. Its holder {holder.holder} is no pod that may write "
            f"RayClusters of all namespaces. If a KubeRay for one namespace runs there, keep it away from ours "
            f"(ray.watchNamespace); else delete the Lease: kubectl -n {holder.namespace} delete lease {LEASE}"
        )
    return sentences


async def may_write(client: Client, holder: LeaseHolder, namespace: str | None = None) -> bool:
    """Whether it is an operator of a namespace, or else of all. The identity of a holder begins with the name of its
    pod."""
    name, _, _ = holder.holder.partition("_")
    try:
        pod = await client.get(_Holder, name, holder.namespace)
    except NotFound:
        return False
    account = service_account(holder.namespace, pod.spec.service_account_name)
    right = Right.of("update", f"rayclusters.{GROUP}/status", namespace=namespace)
    review = await client.create(SubjectAccessReview, {"spec": spec_of(right, account)})
    return review.status.allowed


def _refusal(place: str) -> str:
    return (
        f"KubeRay's operator is active in the namespace {place}, where users may write: this operator would not "
        f"believe its Lease there, and both would look after Ray. Set ray.kuberayNamespaces={{{place}}}, and ours "
        "writes nothing until it is told to take over (docs/migration.md), or ray.enabled=false"
    )
