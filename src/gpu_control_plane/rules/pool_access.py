"""Who may ask for the resources of a pool, as `spec.access` says it.

The decision that counts is made by the API server, in CEL (`access_policy`), from what `access_index` writes down; this
is the same decision for everything that explains it. The RBAC verb `use`, which grants access too, is known to the API
server alone.
"""

from collections.abc import Mapping

import msgspec

from gpu_control_plane.api.access import Access
from gpu_control_plane.api.gpupool import GPUPool

SERVICE_ACCOUNT_DEFAULT = "default"


class PodCreation(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod is created, as which service account it runs, and who creates it."""

    namespace: str
    namespace_labels: Mapping[str, str] = {}
    service_account: str = SERVICE_ACCOUNT_DEFAULT
    user: str = ""
    groups: tuple[str, ...] = ()


def admits(access: Access | None, creation: PodCreation) -> bool:
    """Whether `spec.access` lets the pod ask for the pool's resources: any match is enough, absence admits nobody."""
    if access is None:
        return False
    return (
        creation.namespace in access.namespaces
        or (access.namespace_selector is not None and access.namespace_selector.matches(creation.namespace_labels))
        or any(
            (account.namespace, account.name) == (creation.namespace, creation.service_account)
            for account in access.service_accounts
        )
        or creation.user in access.users
        or any(group in access.groups for group in creation.groups)
    )


def admits_nobody(pool: GPUPool) -> bool:
    """Whether `spec.access` names nobody, so that only the RBAC verb `use` can let anybody in."""
    access = pool.spec.access
    return access is None or access == Access()
