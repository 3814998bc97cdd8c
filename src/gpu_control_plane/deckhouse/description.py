"""The short description of a cluster: what a person decides, and nothing that follows from it.

Secrets are never in it, only where they come from. Everything is parsed once, here: addresses are addresses, networks
are networks, and whoever gets a `ClusterDescription` need not look again.
"""

import re
from collections.abc import Mapping
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError
from typing import Annotated, Any, Literal

import msgspec

from gpu_control_plane.deckhouse.errors import BadDescription
from gpu_control_plane.deckhouse.kinds.configuration import Bundle, KubernetesVersion, LogLevel, ReleaseChannel
from gpu_control_plane.deckhouse.kinds.document import ADDRESS, Labels, Name, Port, Taint
from gpu_control_plane.deckhouse.kinds.nodes import MIGCustomConfig
from gpu_control_plane.deckhouse.kinds.services import AccessLevel, ReclaimPolicy
from gpu_control_plane.deckhouse.shape_faults import shape_fault
from gpu_control_plane.kube.written_yaml import BadYAML, read_one

Edition = Literal["CE", "BE", "SE", "SE-Plus", "EE"]
Containerd = Literal["V1", "V2"]
RUNTIMES: Mapping[Containerd, Literal["Containerd", "ContainerdV2"]] = {"V1": "Containerd", "V2": "ContainerdV2"}
"""What Deckhouse calls them."""
_PACKAGE = msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9+.-]*$", description="the name of a package, such as nvidia-open")
_STREAM = msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9.-]*$", description="the name of a stream, such as 580-open")
_REGISTRY = msgspec.Meta(
    pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$",
    description="a host, with port and path where needed, such as registry.example.com/modules",
)
GroupName = Annotated[
    str,
    msgspec.Meta(
        pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        max_length=42,
        description="lower-case letters, digits and dashes, such as w-gpu",
    ),
]
_MAX_RANGE_ADDRESSES = 1024


class SecretReference(str):
    """Where a secret comes from: `env:NAME`, `file:PATH` or `ask`."""

    __slots__ = ()

    @property
    def source(self) -> str:
        return self.partition(":")[0]

    @property
    def name(self) -> str:
        return self.partition(":")[2]


class FileReference(str):
    """A file whose content is no secret, relative to the description: `file:PATH`."""

    __slots__ = ()

    @property
    def path(self) -> str:
        return self.removeprefix("file:")


class AddressRange(str):
    """One address, or several in a row with a dash between the first and the last."""

    __slots__ = ()

    @property
    def first(self) -> IPv4Address:
        return IPv4Address(self.partition("-")[0].strip())

    @property
    def last(self) -> IPv4Address:
        return IPv4Address((self.partition("-")[2] or self).strip())

    @property
    def addresses(self) -> tuple[IPv4Address, ...]:
        return tuple(IPv4Address(number) for number in range(int(self.first), int(self.last) + 1))

    @property
    def span(self) -> str:
        """Both ends, as MetalLB wants them."""
        return f"{self.first}-{self.last}"

    def overlaps(self, other: "AddressRange") -> bool:
        return self.first <= other.last and other.first <= self.last


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Base of everything in the description."""


class Platform(Part, frozen=True, kw_only=True):
    """Which Deckhouse, and from where."""

    edition: Edition = "EE"
    registry: Annotated[str, _REGISTRY] = "registry.deckhouse.ru"
    license: SecretReference | None = None
    license_encoding: Literal["Base64", "Plain"] = "Base64"
    """How the licence key is handed out: in Base64, as the vendor's own commands expect it, or as it is."""
    bundle: Bundle = "Default"
    release_channel: ReleaseChannel = "Stable"
    log_level: LogLevel = "Info"


class Kubernetes(Part, frozen=True, kw_only=True):
    pod_subnet: IPv4Network
    service_subnet: IPv4Network
    version: KubernetesVersion = "Automatic"
    pod_subnet_node_prefix: Annotated[int, msgspec.Meta(ge=16, le=28)] = 24
    cluster_domain: Name = "cluster.local"
    containerd: Containerd = "V1"


class Network(Part, frozen=True, kw_only=True):
    node_subnets: Annotated[tuple[IPv4Network, ...], msgspec.Meta(min_length=1)]
    public_domain_template: str


class SSH(Part, frozen=True, kw_only=True):
    """How dhctl, and later Deckhouse, reach the machines."""

    user: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^[A-Za-z_][A-Za-z0-9_.@-]*$",
            description="the name of an account on the machines, such as root",
        ),
    ] = "root"
    port: Port = 22
    private_key: SecretReference | None = None
    sudo_password: SecretReference | None = None


class Masters(Part, frozen=True, kw_only=True):
    """dhctl installs the first; Deckhouse adds the others."""

    hosts: Annotated[tuple[AddressRange, ...], msgspec.Meta(min_length=1)]


class NativeSharing(Part, frozen=True, kw_only=True):
    """How Deckhouse divides the cards of a group that it serves itself."""

    sharing: Literal["Exclusive", "TimeSlicing", "MIG"] = "Exclusive"
    partition_count: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    parted_config: str | None = None
    custom_configs: tuple[MIGCustomConfig, ...] = ()


class GPUNodes(Part, frozen=True, kw_only=True):
    """What makes the machines of a group GPU nodes."""

    setup: Literal["Scripts", "Native", "None"] = "Scripts"
    """Who brings driver, toolkit and runtime: scripts of ours; scripts and Deckhouse's own support; nobody."""
    driver: Annotated[str, _PACKAGE] | None = None
    """The package with the driver; on Ubuntu there is a usual one."""
    driver_stream: Annotated[str, _STREAM] | None = None
    """The stream of the module nvidia-driver that has the package, on CentOS 8 and 9 and their kin."""
    packages: tuple[Annotated[str, _PACKAGE], ...] = ()
    toolkit_repository: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^https?://[A-Za-z0-9._:/-]+[A-Za-z0-9]$",
            description="an address such as https://mirror.example.com/libnvidia-container",
        ),
    ] = "https://nvidia.github.io/libnvidia-container"
    default_runtime: bool = False
    """Whether pods run with NVIDIA's runtime without asking. Pools need it not: cards come by CDI."""
    native: NativeSharing | None = None


class NodeGroup(Part, frozen=True, kw_only=True):
    name: GroupName
    hosts: tuple[AddressRange, ...]
    bundle: Literal["ubuntu-lts", "debian", "centos", "redos", "rosa", "astra", "altlinux", "opensuse"] = "ubuntu-lts"
    containerd: Containerd | None = None
    labels: Labels = {}
    taints: tuple[Taint, ...] = ()
    max_pods: Annotated[int, msgspec.Meta(ge=1)] | None = None
    disruptions: Literal["Manual", "Automatic"] | None = None
    gpu: GPUNodes | None = None

    @property
    def addresses(self) -> tuple[IPv4Address, ...]:
        return tuple(address for hosts in self.hosts for address in hosts.addresses)


class StorageClass(Part, frozen=True, kw_only=True):
    """One CephStorageClass: `pool` makes it RBD, `fileSystem` CephFS."""

    name: Name
    pool: str | None = None
    file_system: str | None = None
    fs_type: Literal["ext4", "xfs"] = "ext4"
    reclaim_policy: ReclaimPolicy = "Delete"


class Ceph(Part, frozen=True, kw_only=True):
    cluster_id: Annotated[
        str,
        msgspec.Meta(
            pattern="^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$", description="what `ceph fsid` prints"
        ),
    ] = msgspec.field(name="clusterID")
    monitors: Annotated[
        tuple[
            Annotated[
                str,
                msgspec.Meta(
                    pattern=rf"^{ADDRESS}:[1-9][0-9]{{0,4}}$",
                    description="address and port, such as 192.168.3.31:6789",
                ),
            ],
            ...,
        ],
        msgspec.Meta(min_length=1),
    ]
    user_key: SecretReference
    user_id: str = msgspec.field(name="userID", default="admin")
    name: Name = "ceph"
    authentication: bool = True
    """Whether a CephClusterAuthentication is written, too: older releases of csi-ceph read it."""
    subvolume_group: str | None = None
    storage_classes: tuple[StorageClass, ...] = ()


class LocalStorage(Part, frozen=True, kw_only=True):
    name: Name
    path: Annotated[str, msgspec.Meta(pattern="^/.+", description="a path from the root, such as /data/local")]
    node_groups: tuple[GroupName, ...]
    reclaim_policy: ReclaimPolicy = "Retain"


class Storage(Part, frozen=True, kw_only=True):
    ceph: Ceph | None = None
    local: tuple[LocalStorage, ...] = ()
    default_class: Name | None = None


class Ingress(Part, frozen=True, kw_only=True):
    """An ingress controller behind addresses that MetalLB announces."""

    name: Name
    ingress_class: Name
    addresses: Annotated[tuple[AddressRange, ...], msgspec.Meta(min_length=1)]
    node_group: GroupName | None = None
    """Where it runs and where its addresses are announced; everywhere if absent."""
    interfaces: tuple[str, ...] = ()
    source_ranges: tuple[IPv4Network, ...] = ()


class PublishAPI(Part, frozen=True, kw_only=True):
    https: Literal["SelfSigned", "Global"] = "SelfSigned"
    ingress_class: Name | None = None
    whitelist: tuple[IPv4Network, ...] = ()


class Person(Part, frozen=True, kw_only=True):
    name: Name
    email: str
    password: SecretReference
    """The password, which is hashed, or its bcrypt hash."""
    access_level: AccessLevel = "User"
    port_forwarding: bool = False
    ttl: str | None = None


class Access(Part, frozen=True, kw_only=True):
    publish_api: PublishAPI | None = msgspec.field(name="publishAPI", default=None)
    users: tuple[Person, ...] = ()


class CertificateAuthority(Part, frozen=True, kw_only=True):
    """The authority that signs the certificates of the cluster's sites."""

    certificate: FileReference
    key: SecretReference
    issuer: Name = "internal-ca"


class RegistryCertificate(Part, frozen=True, kw_only=True):
    """A certificate that every node must trust, to pull from a registry of one's own."""

    name: GroupName
    certificate: FileReference


class ModuleSettings(Part, frozen=True, kw_only=True):
    enabled: bool = True
    version: Annotated[int, msgspec.Meta(ge=1)] | None = None
    settings: dict[str, Any] = {}


class Pool(Part, frozen=True, kw_only=True):
    """A GPUPool of the cards of some node groups."""

    name: GroupName
    node_groups: Annotated[tuple[GroupName, ...], msgspec.Meta(min_length=1)]
    products: tuple[str, ...] = ()
    mode: Literal["Exclusive", "MIG", "TimeSlice"] = "Exclusive"
    mig_profile: str | None = None
    replicas: Annotated[int, msgspec.Meta(ge=2, le=64)] | None = None
    namespaces: tuple[GroupName, ...] = ()
    approval: Literal["Manual", "Automatic"] = "Manual"


class ModuleOrigin(Part, frozen=True, kw_only=True):
    """Where Deckhouse finds our module."""

    repo: Annotated[str, _REGISTRY]
    release_channel: Literal["Alpha", "Beta", "EarlyAccess", "Stable", "RockSolid", "Lts"] = "Stable"
    docker_config: SecretReference | None = None
    """A Docker configuration file with the registry's login."""


class GPUControlPlane(Part, frozen=True, kw_only=True):
    source: ModuleOrigin
    settings: dict[str, Any] = {}
    pools: tuple[Pool, ...] = ()


class ClusterDescription(Part, frozen=True, kw_only=True):
    """The whole of it."""

    version: Literal[1]
    deckhouse: Platform
    kubernetes: Kubernetes
    network: Network
    ssh: SSH
    masters: Masters
    node_groups: tuple[NodeGroup, ...] = ()
    storage: Storage = Storage()
    ingress: tuple[Ingress, ...] = ()
    access: Access = Access()
    certificate_authority: CertificateAuthority | None = None
    registry_certificates: tuple[RegistryCertificate, ...] = ()
    modules: dict[str, ModuleSettings] = {}
    gpu_control_plane: GPUControlPlane | None = None

    @property
    def master_addresses(self) -> tuple[IPv4Address, ...]:
        return tuple(address for hosts in self.masters.hosts for address in hosts.addresses)

    @property
    def certificates(self) -> tuple[tuple[str, FileReference], ...]:
        """The files with certificates that it refers to, each after its place."""
        registries = ((f"registryCertificates {each.name}", each.certificate) for each in self.registry_certificates)
        authority = self.certificate_authority
        return (*registries, *([("certificateAuthority.certificate", authority.certificate)] if authority else ()))

    def containerd_of(self, group: NodeGroup) -> Containerd:
        return group.containerd or self.kubernetes.containerd


def read_description(content: str | bytes) -> ClusterDescription:
    """Parse a description; `BadDescription` says what is wrong and where."""
    try:
        given = read_one(content)
    except BadYAML as error:
        raise BadDescription([str(error)]) from error
    if given is None:
        raise BadDescription(["The description is empty: `kubectl gpu deckhouse example` prints one to begin with."])
    if not isinstance(given, dict):
        raise BadDescription(
            ["This is no description of a cluster: `kubectl gpu deckhouse example` prints one to begin with."]
        )
    try:
        return msgspec.convert(given, ClusterDescription, dec_hook=_parsed)
    except msgspec.ValidationError as error:
        fault = shape_fault(error, ClusterDescription)
        raise BadDescription([f"{fault.path or 'the description'}: {fault.why}"]) from None


def _parsed(kind: type, value: object) -> object:
    """The types that msgspec does not know. What is raised here becomes a sentence with its path."""
    if not isinstance(value, str):
        raise TypeError(f"text is needed here, such as {_LIKE[kind]}")
    return _PARSERS[kind](value)


def is_secret_reference(text: object) -> bool:
    """Whether a text says where a secret comes from, and is none itself."""
    return isinstance(text, str) and bool(re.fullmatch(r"ask|env:[A-Za-z_][A-Za-z0-9_]*|file:.+", text))


def _secret(text: str) -> SecretReference:
    if is_secret_reference(text):
        return SecretReference(text)
    # The text is not repeated: it may well be the secret itself.
    raise ValueError("a secret has no place in this file: write env:NAME, file:PATH, or ask to be asked for it")


def _file(text: str) -> FileReference:
    if not text.startswith("file:") or not text.removeprefix("file:"):
        # The text is not repeated: a private key may have got here.
        raise ValueError("write file:PATH, relative to this description")
    return FileReference(text)


def _network(text: str) -> IPv4Network:
    try:
        return IPv4Network(text)
    except (AddressValueError, NetmaskValueError, ValueError) as error:
        raise ValueError(f"{text!r} is no IPv4 network ({error}): write one such as 10.111.0.0/16") from None


def _range(text: str) -> AddressRange:
    parsed = AddressRange(text)
    try:
        first, last = parsed.first, parsed.last
    except AddressValueError:
        raise ValueError(
            f"{text!r} is no address and no range: write 192.168.3.61 or 192.168.3.61-192.168.3.66"
        ) from None
    if last < first or int(last) - int(first) >= _MAX_RANGE_ADDRESSES:
        raise ValueError(f"{text!r} must go up, and hold at most {_MAX_RANGE_ADDRESSES} addresses")
    return parsed


_PARSERS: dict[type, Any] = {
    SecretReference: _secret,
    FileReference: _file,
    IPv4Network: _network,
    AddressRange: _range,
}
_LIKE = {
    SecretReference: "env:NAME",
    FileReference: "file:PATH",
    IPv4Network: "10.111.0.0/16",
    AddressRange: "192.168.3.61",
}
