"""Refuses to install an operator of Ray beside a KubeRay that it would not believe to be there: both would write.

Ours looks on where it sees KubeRay's Lease in a namespace that users cannot write in, or that the values name. The
chart of KubeRay lands in `default` if no namespace is named.
"""

from collections.abc import Iterable
from datetime import datetime

from gpu_control_plane.api.ray.names import LEASE
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import KubeError
from gpu_control_plane.kube.lease_watch import TimedLease, active_holder, lease_selection, observe
from gpu_control_plane.rules.trusted_namespaces import kuberay_namespaces


class UnbelievedKubeRay(KubeError):
    """KubeRay's operator is active where ours would not look for it; the message says what to set."""


async def check_kuberay(client: Client, own_namespace: str, named: Iterable[str], now: datetime) -> None:
    """Raise `UnbelievedKubeRay` if there is one."""
    trusted = kuberay_namespaces(named, own=own_namespace)
    leases = await client.list(TimedLease, lease_selection(LEASE))
    unbelieved = [observe(lease, now) for lease in leases if not trusted.include(lease.metadata.namespace)]
    if (holder := active_holder(unbelieved, now)) is not None:
        place = holder.namespace
        raise UnbelievedKubeRay(
            f"KubeRay's operator is active in the namespace {place}, where users may write: this operator would not "
            f"believe its Lease there, and both would look after Ray. Set ray.kuberayNamespaces={{{place}}}, and ours "
            "looks on until it is told to take over (docs/migration.md), or ray.enabled=false. If nobody has "
            "installed KubeRay there, a user has written that Lease, and would keep ours from all Ray: delete it, and "
            f"name no such namespace (kubectl -n {place} delete lease {LEASE})"
        )
