"""What dhctl itself reads (config.yml), and ModuleConfig."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from gpu_control_plane.deckhouse.kinds.document import CIDR, Document, Metadata, Name, Shape
from gpu_control_plane.deckhouse.kinds.secret_settings import secret_settings

KubernetesVersion = Literal["Automatic", "1.32", "1.33", "1.34", "1.35", "1.36"]
ReleaseChannel = Literal["Alpha", "Beta", "EarlyAccess", "Stable", "RockSolid", "LTS"]
ModuleReleaseChannel = Literal["Alpha", "Beta", "EarlyAccess", "Stable", "RockSolid", "Lts"]
Bundle = Literal["Default", "Minimal", "Managed"]
LogLevel = Literal["Trace", "Debug", "Info", "Error"]
ContainerRuntime = Literal["Containerd", "ContainerdV2", "NotManaged"]


class Proxy(Shape, frozen=True, kw_only=True):
    http_proxy: str | None = None
    https_proxy: str | None = None
    no_proxy: tuple[str, ...] = ()


class Cloud(Shape, frozen=True, kw_only=True):
    provider: str
    prefix: str | None = None


class ClusterConfiguration(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1"
    kind: ClassVar[str] = "ClusterConfiguration"

    cluster_type: Literal["Static", "Cloud"]
    cloud: Cloud | None = None
    pod_subnet_cidr: CIDR = msgspec.field(name="podSubnetCIDR")
    pod_subnet_node_cidr_prefix: Annotated[str, msgspec.Meta(pattern=r"^([1-2]?[0-9]|3[0-2])$")] | None = msgspec.field(
        name="podSubnetNodeCIDRPrefix", default=None
    )
    service_subnet_cidr: CIDR = msgspec.field(name="serviceSubnetCIDR")
    kubernetes_version: KubernetesVersion
    cluster_domain: Name
    default_cri: ContainerRuntime | None = msgspec.field(name="defaultCRI", default=None)
    encryption_algorithm: Literal["RSA-2048", "RSA-3072", "RSA-4096", "ECDSA-P256"] | None = None
    proxy: Proxy | None = None


class InitDeckhouse(Shape, frozen=True, kw_only=True):
    images_repo: str
    registry_docker_cfg: str | None = None
    registry_ca: str | None = msgspec.field(name="registryCA", default=None)
    registry_scheme: Literal["HTTP", "HTTPS"] | None = None
    dev_branch: str | None = None


class InitConfiguration(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1"
    kind: ClassVar[str] = "InitConfiguration"

    deckhouse: InitDeckhouse

    @property
    def is_secret(self) -> bool:
        return self.deckhouse.registry_docker_cfg is not None


class StaticClusterConfiguration(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1"
    kind: ClassVar[str] = "StaticClusterConfiguration"

    internal_network_cidrs: tuple[CIDR, ...] = msgspec.field(name="internalNetworkCIDRs")


class ModuleConfigSpec(Shape, frozen=True, kw_only=True):
    enabled: bool | None = None
    version: Annotated[int, msgspec.Meta(ge=1)] | None = None
    settings: dict[str, Any] = {}
    source: str | None = None
    update_policy: str | None = None
    maintenance: Literal["NoResourceReconciliation"] | None = None


class ModuleConfig(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1alpha1"
    kind: ClassVar[str] = "ModuleConfig"

    metadata: Metadata
    spec: ModuleConfigSpec

    @property
    def is_secret(self) -> bool:
        return any(True for _ in secret_settings(self.spec.settings))


class ModuleRegistry(Shape, frozen=True, kw_only=True):
    repo: str
    scheme: Literal["HTTP", "HTTPS"] | None = None
    docker_cfg: str | None = None
    ca: str | None = None


class ModuleSourceSpec(Shape, frozen=True, kw_only=True):
    registry: ModuleRegistry
    scan_interval: str | None = None


class ModuleSource(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1alpha1"
    kind: ClassVar[str] = "ModuleSource"

    metadata: Metadata
    spec: ModuleSourceSpec

    @property
    def is_secret(self) -> bool:
        return self.spec.registry.docker_cfg is not None


class ModuleUpdate(Shape, frozen=True, kw_only=True):
    mode: Literal["Auto", "Manual", "AutoPatch"]


class ModuleUpdatePolicySpec(Shape, frozen=True, kw_only=True):
    release_channel: ModuleReleaseChannel | None = None
    update: ModuleUpdate


class ModuleUpdatePolicy(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1alpha2"
    kind: ClassVar[str] = "ModuleUpdatePolicy"

    metadata: Metadata
    spec: ModuleUpdatePolicySpec
