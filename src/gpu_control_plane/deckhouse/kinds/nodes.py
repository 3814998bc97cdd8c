"""Node groups, the scripts that run on their nodes, and the machines that become nodes."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from gpu_control_plane.deckhouse.kinds.document import (
    Document,
    IPv4,
    Labels,
    LabelSelector,
    Metadata,
    Name,
    Port,
    Shape,
    Taint,
)

Bundles = Literal["ubuntu-lts", "centos", "debian", "redos", "rosa", "astra", "altlinux", "opensuse", "*"]


class NodeTemplate(Shape, frozen=True, kw_only=True):
    labels: Labels = {}
    annotations: Labels = {}
    taints: tuple[Taint, ...] = ()


class StaticInstances(Shape, frozen=True, kw_only=True):
    count: Annotated[int, msgspec.Meta(ge=0)] | None = None
    label_selector: LabelSelector | None = None


class CRI(Shape, frozen=True, kw_only=True):
    type: Literal["Containerd", "ContainerdV2", "NotManaged", "Docker"]
    containerd: dict[str, Any] | None = None
    containerd_v2: dict[str, Any] | None = msgspec.field(name="containerdV2", default=None)


class Disruptions(Shape, frozen=True, kw_only=True):
    approval_mode: Literal["Manual", "Automatic", "RollingUpdate"]
    automatic: dict[str, Any] | None = None
    rolling_update: dict[str, Any] | None = None


class ResourceReservation(Shape, frozen=True, kw_only=True):
    mode: Literal["Auto", "Static", "Off"]
    static: dict[str, Any] | None = None


class TopologyManager(Shape, frozen=True, kw_only=True):
    enabled: bool = False
    scope: Literal["Container", "Pod"] | None = None
    policy: Literal["None", "BestEffort", "Restricted", "SingleNumaNode"] | None = None


class Kubelet(Shape, frozen=True, kw_only=True):
    max_pods: Annotated[int, msgspec.Meta(ge=1)] | None = None
    root_dir: str | None = None
    container_log_max_size: str | None = None
    container_log_max_files: int | None = None
    resource_reservation: ResourceReservation | None = None
    topology_manager: TopologyManager | None = None


class Update(Shape, frozen=True, kw_only=True):
    max_concurrent: int | str


class TimeSlicing(Shape, frozen=True, kw_only=True):
    partition_count: Annotated[int, msgspec.Meta(ge=1, le=100)]


class MIGSlice(Shape, frozen=True, kw_only=True):
    profile: Annotated[str, msgspec.Meta(pattern=r"^[0-9]+g\.[0-9]+gb(\.me)?$")]
    count: Annotated[int, msgspec.Meta(ge=1, le=7)]


class MIGCustomConfig(Shape, frozen=True, kw_only=True):
    index: Annotated[int, msgspec.Meta(ge=0)]
    slices: Annotated[tuple[MIGSlice, ...], msgspec.Meta(min_length=1)]


class MIG(Shape, frozen=True, kw_only=True):
    parted_config: Annotated[
        str, msgspec.Meta(pattern=r"^(all-balanced|all-disabled|all-[0-9]g\.[0-9]{1,2}gb(\.me)?|custom)$")
    ]
    custom_configs: tuple[MIGCustomConfig, ...] = ()


class GPU(Shape, frozen=True, kw_only=True):
    """Deckhouse's own way to serve cards."""

    sharing: Literal["TimeSlicing", "MIG", "Exclusive"]
    time_slicing: TimeSlicing | None = None
    mig: MIG | None = None


class NodeGroupSpec(Shape, frozen=True, kw_only=True):
    node_type: Literal["Static", "CloudStatic", "CloudPermanent", "CloudEphemeral"]
    cloud_instances: dict[str, Any] | None = None
    static_instances: StaticInstances | None = None
    node_template: NodeTemplate | None = None
    cri: CRI | None = None
    disruptions: Disruptions | None = None
    kubelet: Kubelet | None = None
    update: Update | None = None
    chaos: dict[str, Any] | None = None
    gpu: GPU | None = None


class NodeGroup(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1"
    kind: ClassVar[str] = "NodeGroup"

    metadata: Metadata
    spec: NodeGroupSpec


class NodeGroupConfigurationSpec(Shape, frozen=True, kw_only=True):
    node_groups: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    bundles: Annotated[tuple[Bundles, ...], msgspec.Meta(min_length=1)]
    weight: Annotated[int, msgspec.Meta(ge=0)] | None = None
    content: Annotated[str, msgspec.Meta(min_length=1)]


class NodeGroupConfiguration(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1alpha1"
    kind: ClassVar[str] = "NodeGroupConfiguration"

    metadata: Metadata
    spec: NodeGroupConfigurationSpec


class SSHCredentialsSpec(Shape, frozen=True, kw_only=True):
    user: Annotated[str, msgspec.Meta(min_length=1)]
    private_ssh_key: str | None = msgspec.field(name="privateSSHKey", default=None)
    sudo_password_encoded: str | None = None
    ssh_port: Port | None = None
    ssh_extra_args: str | None = None


class SSHCredentials(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1alpha2"
    kind: ClassVar[str] = "SSHCredentials"
    holds_secret: ClassVar[bool] = True

    metadata: Metadata
    spec: SSHCredentialsSpec


class CredentialsRef(Shape, frozen=True, kw_only=True):
    api_version: Literal["deckhouse.io/v1alpha2", "deckhouse.io/v1alpha1"]
    kind: Literal["SSHCredentials"]
    name: Name


class StaticInstanceSpec(Shape, frozen=True, kw_only=True):
    address: IPv4
    credentials_ref: CredentialsRef


class StaticInstance(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = "deckhouse.io/v1alpha2"
    kind: ClassVar[str] = "StaticInstance"

    metadata: Metadata
    spec: StaticInstanceSpec
