"""Who may ask for the resources of a pool, as `spec.access` says it.

The decision that counts is made by the API server, in CEL (`access_policy`), from what `access_index` writes down; this
is the same decision for everything that explains it. The RBAC verb `use`, which grants access too, is known to the API
server alone.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.access import Access
from gpu_control_plane.api.gpupool import GPUPool

SERVICE_ACCOUNT_DEFAULT = "default"
_KUBERNETES: Final = "kube-system"
_CONTROLLER_MANAGER: Final = "system:kube-controller-manager"
_ACCOUNT: Final = "system:serviceaccount"
_ACCOUNTS: Final = "system:serviceaccounts"
"""The group of all service accounts."""


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


def admitted_controllers(access: Access | None, own_namespace: str) -> tuple[str, ...]:
    """Users and groups in `spec.access` in whose name controllers, those of Kubernetes or ours in `own_namespace`,
    create pods for every namespace: through them, everybody's pods are let in."""
    if access is None:
        return ()
    places = (_KUBERNETES, own_namespace)
    users = (user for user in access.users if user == _CONTROLLER_MANAGER or _is_controller(user, places))
    groups = {_ACCOUNTS, *(f"{_ACCOUNTS}:{place}" for place in places)}
    return (*users, *(group for group in access.groups if group in groups))


def _is_controller(user: str, places: Iterable[str]) -> bool:
    return user.endswith("-controller") and user.startswith(tuple(f"{_ACCOUNT}:{place}:" for place in places))


def admits_nobody(pool: GPUPool) -> bool:
    """Whether `spec.access` names nobody, so that only the RBAC verb `use` can let anybody in."""
    access = pool.spec.access
    return access is None or access == Access()
