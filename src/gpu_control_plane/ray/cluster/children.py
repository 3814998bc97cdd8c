"""Which objects beside its pods a RayCluster has, and which it has no more. Pure."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

from gpu_control_plane.api.ray.names import CREATED_BY, Label, NodeType
from gpu_control_plane.kube.objects import Object, Resource
from gpu_control_plane.ray.cluster import manifests
from gpu_control_plane.ray.cluster.manifests.context import RAY_CLUSTER, RAY_SERVICE, ClusterContext, Manifest
from gpu_control_plane.ray.names import serve_service_name
from gpu_control_plane.ray.owned import (
    OwnedClaim,
    OwnedIngress,
    OwnedNetworkPolicy,
    OwnedRole,
    OwnedRoleBinding,
    OwnedSecret,
    OwnedService,
    OwnedServiceAccount,
    is_owned,
)
from gpu_control_plane.ray.scheduling import BatchSchedule


class OwnedRoute(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("route.openshift.io", "v1", "Route", "routes")
    spec: dict[str, Any] = {}


class OwnedIssuer(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("cert-manager.io", "v1", "Issuer", "issuers")
    spec: dict[str, Any] = {}


class OwnedCertificate(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("cert-manager.io", "v1", "Certificate", "certificates")
    spec: dict[str, Any] = {}


KINDS: Final[tuple[type[Object], ...]] = (
    OwnedServiceAccount,
    OwnedRole,
    OwnedRoleBinding,
    OwnedIngress,
    OwnedSecret,
    OwnedService,
    OwnedClaim,
    OwnedNetworkPolicy,
)
"""Kinds that every cluster may have, in the order in which they are made. The API server has them always."""
CERTIFICATE_KINDS: Final[tuple[type[Object], ...]] = (OwnedIssuer, OwnedCertificate)
"""Kinds of cert-manager, which may not be there."""
_REMOVABLE: Final[frozenset[type[Object]]] = frozenset(
    {OwnedServiceAccount, OwnedRole, OwnedRoleBinding, OwnedIngress, OwnedService, OwnedNetworkPolicy, OwnedRoute}
)
"""Kinds whose objects go when the spec does not ask for them any more. Secrets and volumes hold what may be missed."""


_OF_AUTOSCALER: Final[frozenset[type[Object]]] = frozenset({OwnedServiceAccount, OwnedRole, OwnedRoleBinding})


class ApplyMode(StrEnum):
    """What happens to an object that is there already."""

    RECONCILE = "reconcile"
    """It is changed to what it should be."""
    CREATE_ONLY = "create only"
    """It is left as it is; it is created if there is none."""


class Child(msgspec.Struct, frozen=True):
    """An object that there should be."""

    kind: type[Object]
    manifest: Manifest
    mode: ApplyMode = ApplyMode.RECONCILE

    @property
    def name(self) -> str:
        name: str = self.manifest["metadata"]["name"]
        return name


def desired_children(context: ClusterContext, scheduler: BatchSchedule | None, token: bytes) -> list[Child]:
    """Everything that belongs to the cluster beside its pods, in the order in which it is made. `token` is for the
    Secret of a cluster that has none yet."""
    found: list[tuple[type[Object], Manifest | None, ApplyMode]] = [
        (OwnedServiceAccount, manifests.service_account(context), ApplyMode.RECONCILE),
        (OwnedRole, manifests.role(context), ApplyMode.RECONCILE),
        (OwnedRoleBinding, manifests.role_binding(context), ApplyMode.RECONCILE),
        (OwnedRoute, manifests.route(context), ApplyMode.RECONCILE),
        (OwnedIngress, manifests.ingress(context), ApplyMode.RECONCILE),
        (OwnedSecret, manifests.auth_secret(context, token), ApplyMode.CREATE_ONLY),
        (OwnedService, _found_by_us(manifests.head_service(context)), ApplyMode.RECONCILE),
        (OwnedService, _found_by_us(manifests.headless_service(context)), ApplyMode.RECONCILE),
        (OwnedService, _found_by_us(manifests.serve_service(context)), ApplyMode.RECONCILE),
        (OwnedClaim, manifests.gcs_claim(context), ApplyMode.CREATE_ONLY),
        *((OwnedNetworkPolicy, policy, ApplyMode.RECONCILE) for policy in manifests.network_policies(context)),
    ]
    children = [Child(kind, manifest, mode) for kind, manifest, mode in found if manifest is not None]
    if scheduler is not None:
        kinds = {(kind.resource.api_version, kind.resource.kind): kind for kind in scheduler.kinds}
        children += [
            Child(kinds[manifest["apiVersion"], manifest["kind"]], manifest)
            for manifest in scheduler.objects(context.cluster, context.cluster)
        ]
    return children


def certificate_children(context: ClusterContext, head_ips: Iterable[str], worker_ips: Iterable[str]) -> list[Child]:
    """Issuers and Certificates for TLS: they name the addresses of pods, and so follow them."""
    kinds = {kind.resource.kind: kind for kind in CERTIFICATE_KINDS}
    made = manifests.certificates(context, head_ips, worker_ips)
    return [Child(kinds[manifest["kind"]], manifest) for manifest in made]


def surplus_children(
    context: ClusterContext,
    children: Iterable[Child],
    held: Mapping[type[Object], Iterable[Object]],
    *,
    autoscaler_runs: bool,
) -> list[Object]:
    """Objects that the cluster has made and does not ask for any more.

    Rights of the autoscaler stay while a head runs it that was made before autoscaling was switched off: without them
    its container would end again and again, and the head would not be ready.
    """
    wanted = {(child.kind, child.name) for child in children}
    cluster = context.cluster
    needed = _OF_AUTOSCALER if autoscaler_runs else frozenset()
    return [
        item
        for kind, items in held.items()
        if kind in _REMOVABLE and kind not in needed
        for item in items
        if is_owned(item, cluster) and (kind, item.name) not in wanted and not item.deleting and _is_ours(item, context)
    ]


def _is_ours(item: Object, context: ClusterContext) -> bool:
    """Whether this part of the operator made it. A RayService has Services of its own for its clusters."""
    if not isinstance(item, OwnedService):
        return True
    if item.name == serve_service_name(context.cluster.name):
        return context.origin_kind == RAY_CLUSTER
    selects_head = (item.spec.get("selector") or {}).get(Label.NODE_TYPE) == NodeType.HEAD
    labelled_head = item.metadata.labels.get(Label.NODE_TYPE) == NodeType.HEAD
    headless = Label.HEADLESS_SERVICE in item.metadata.labels
    return headless or (selects_head and labelled_head and context.origin_kind != RAY_SERVICE)


def _found_by_us(manifest: Manifest | None) -> Manifest | None:
    """With the label by which our caches select: KubeRay's objects may lack it, and the head's Service takes it from
    the labels of the head's template."""
    if manifest is None:
        return None
    metadata = manifest["metadata"]
    labels = {**metadata.get("labels", {}), Label.CREATED_BY.value: CREATED_BY}
    return {**manifest, "metadata": {**metadata, "labels": labels}}
