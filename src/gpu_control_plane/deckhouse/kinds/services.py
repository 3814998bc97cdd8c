"""Storage, load balancing, ingress, people and certificates."""

from typing import Annotated, ClassVar, Literal

import msgspec

from gpu_control_plane.deckhouse.kinds.document import (
    AddressRange,
    Document,
    Labels,
    LabelSelector,
    Metadata,
    Name,
    Port,
    Shape,
    Toleration,
)

AccessLevel = Literal["User", "PrivilegedUser", "Editor", "Admin", "ClusterEditor", "ClusterAdmin", "SuperAdmin"]
ReclaimPolicy = Literal["Delete", "Retain"]
_Text = Annotated[str, msgspec.Meta(min_length=1)]


class CephFSConnection(Shape, frozen=True, kw_only=True):
    subvolume_group: _Text | None = None


class CephClusterConnectionSpec(Shape, frozen=True, kw_only=True):
    cluster_id: _Text = msgspec.field(name="clusterID")
    monitors: Annotated[tuple[_Text, ...], msgspec.Meta(min_length=1)]
    user_id: _Text = msgspec.field(name="userID")
    user_key: _Text
    ceph_fs: CephFSConnection | None = msgspec.field(name="cephFS", default=None)


class CephClusterConnection(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "storage.deckhouse.io/v1alpha1"
    kind: ClassVar[str] = "CephClusterConnection"
    holds_secret: ClassVar[bool] = True

    metadata: Metadata
    spec: CephClusterConnectionSpec


class CephClusterAuthenticationSpec(Shape, frozen=True, kw_only=True):
    user_id: _Text = msgspec.field(name="userID")
    user_key: _Text


class CephClusterAuthentication(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "storage.deckhouse.io/v1alpha1"
    kind: ClassVar[str] = "CephClusterAuthentication"
    holds_secret: ClassVar[bool] = True

    metadata: Metadata
    spec: CephClusterAuthenticationSpec


class CephFS(Shape, frozen=True, kw_only=True):
    fs_name: _Text


class RBD(Shape, frozen=True, kw_only=True):
    pool: _Text
    default_fs_type: Literal["ext4", "xfs"] | None = msgspec.field(name="defaultFSType", default=None)


class CephStorageClassSpec(Shape, frozen=True, kw_only=True):
    cluster_connection_name: Name
    cluster_authentication_name: Name | None = None
    reclaim_policy: ReclaimPolicy
    type: Literal["CephFS", "RBD"]
    rbd: RBD | None = None
    ceph_fs: CephFS | None = msgspec.field(name="cephFS", default=None)


class CephStorageClass(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "storage.deckhouse.io/v1alpha1"
    kind: ClassVar[str] = "CephStorageClass"

    metadata: Metadata
    spec: CephStorageClassSpec


class LocalPathProvisionerSpec(Shape, frozen=True, kw_only=True):
    path: Annotated[str, msgspec.Meta(pattern="^/.+")]
    node_groups: tuple[Name, ...] = ()
    reclaim_policy: ReclaimPolicy | None = None


class LocalPathProvisioner(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1alpha1"
    kind: ClassVar[str] = "LocalPathProvisioner"

    metadata: Metadata
    spec: LocalPathProvisionerSpec


class L2(Shape, frozen=True, kw_only=True):
    interfaces: tuple[str, ...] = ()


class MetalLoadBalancerClassSpec(Shape, frozen=True, kw_only=True):
    type: Literal["L2"]
    is_default: bool | None = None
    address_pool: Annotated[tuple[AddressRange, ...], msgspec.Meta(min_length=1)]
    l2: L2 | None = None
    node_selector: Labels = {}
    tolerations: tuple[Toleration, ...] = ()


class MetalLoadBalancerClass(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "network.deckhouse.io/v1alpha1"
    kind: ClassVar[str] = "MetalLoadBalancerClass"

    metadata: Metadata
    spec: MetalLoadBalancerClassSpec


class LoadBalancer(Shape, frozen=True, kw_only=True):
    annotations: Labels = {}
    load_balancer_class: Name | None = None
    source_ranges: tuple[str, ...] = ()
    http_port: Port | None = None
    https_port: Port | None = None


class HostPort(Shape, frozen=True, kw_only=True):
    http_port: Port | None = None
    https_port: Port | None = None


class IngressNginxControllerSpec(Shape, frozen=True, kw_only=True):
    ingress_class: Name
    inlet: Literal[
        "LoadBalancer",
        "LoadBalancerWithSSLPassthrough",
        "LoadBalancerWithProxyProtocol",
        "HostPort",
        "HostPortWithSSLPassthrough",
        "HostPortWithProxyProtocol",
        "HostWithFailover",
    ]
    controller_version: str | None = None
    load_balancer: LoadBalancer | None = None
    host_port: HostPort | None = None
    node_selector: Labels = {}
    tolerations: tuple[Toleration, ...] = ()


class IngressNginxController(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1"
    kind: ClassVar[str] = "IngressNginxController"

    metadata: Metadata
    spec: IngressNginxControllerSpec


class Subject(Shape, frozen=True, kw_only=True):
    kind: Literal["User", "Group", "ServiceAccount"]
    name: _Text
    namespace: Name | None = None


class NamespaceSelector(Shape, frozen=True, kw_only=True):
    match_any: Literal[True] | None = None
    label_selector: LabelSelector | None = None


class ClusterAuthorizationRuleSpec(Shape, frozen=True, kw_only=True):
    subjects: Annotated[tuple[Subject, ...], msgspec.Meta(min_length=1)]
    access_level: AccessLevel | None = None
    namespace_selector: NamespaceSelector | None = None
    port_forwarding: bool = False
    allow_scale: bool = False
    additional_roles: tuple[dict[str, str], ...] = ()


class ClusterAuthorizationRule(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1"
    kind: ClassVar[str] = "ClusterAuthorizationRule"

    metadata: Metadata
    spec: ClusterAuthorizationRuleSpec


class UserSpec(Shape, frozen=True, kw_only=True):
    email: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^[^@\sA-Z]+@[^@\sA-Z]+$", description="an address in lower case, such as admin@example.com"
        ),
    ]
    password: _Text
    ttl: Annotated[str, msgspec.Meta(pattern=r"^([0-9]+[smh])+$", description="a time such as 24h or 90m")] | None = (
        None
    )
    groups: tuple[str, ...] = ()
    user_id: str | None = msgspec.field(name="userID", default=None)


class User(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1"
    kind: ClassVar[str] = "User"
    holds_secret: ClassVar[bool] = True

    metadata: Metadata
    spec: UserSpec


class Secret(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = "Secret"
    holds_secret: ClassVar[bool] = True

    metadata: Metadata
    type: str | None = None
    data: dict[str, str] = {}
    string_data: dict[str, str] = {}


class CAIssuer(Shape, frozen=True, kw_only=True):
    secret_name: Name


class ClusterIssuerSpec(Shape, frozen=True, kw_only=True):
    ca: CAIssuer


class ClusterIssuer(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "cert-manager.io/v1"
    kind: ClassVar[str] = "ClusterIssuer"

    metadata: Metadata
    spec: ClusterIssuerSpec
