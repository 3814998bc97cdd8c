"""Node groups, and the machines that Deckhouse turns into their nodes."""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address

from gpu_control_plane.deckhouse.description import (
    RUNTIMES,
    ClusterDescription,
    GPUControlPlane,
    NativeSharing,
    NodeGroup,
)
from gpu_control_plane.deckhouse.kinds import Document, Metadata
from gpu_control_plane.deckhouse.kinds.document import Labels, LabelSelector, Taint, Toleration
from gpu_control_plane.deckhouse.kinds.nodes import (
    CRI,
    GPU,
    MIG,
    CredentialsRef,
    Disruptions,
    Kubelet,
    NodeGroupSpec,
    NodeTemplate,
    SSHCredentials,
    SSHCredentialsSpec,
    StaticInstance,
    StaticInstances,
    StaticInstanceSpec,
    TimeSlicing,
)
from gpu_control_plane.deckhouse.kinds.nodes import NodeGroup as NodeGroupDocument
from gpu_control_plane.deckhouse.secrets import SecretText, base64_text, ssh_key
from gpu_control_plane.rules.managed_nodes import ManagedNodes

GROUP_LABEL = "node.deckhouse.io/group"
"""Deckhouse puts the name of its group on every Node."""
MASTER = "master"
_MACHINE_LABEL = "node-group"
"""On StaticInstances: which group a machine is for."""
_CREDENTIALS = "machines"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def node_groups(cluster: ClusterDescription) -> Iterator[NodeGroupDocument]:
    """Every group; the masters' only if there are more than the one that dhctl installs."""
    if len(cluster.master_addresses) > 1:
        yield _masters(len(cluster.master_addresses) - 1)
    for group in cluster.node_groups:
        yield _group(cluster, group)


def machines(cluster: ClusterDescription, secret: SecretText) -> Iterator[Document]:
    """How Deckhouse reaches the machines, and which there are. dhctl installs the first master itself."""
    ssh = cluster.ssh
    key, sudo = ssh.private_key, ssh.sudo_password
    yield SSHCredentials(
        metadata=Metadata(name=_CREDENTIALS),
        spec=SSHCredentialsSpec(
            user=ssh.user,
            ssh_port=ssh.port,
            private_ssh_key=secret(key, ssh_key("private SSH key")) if key else None,
            sudo_password_encoded=secret(sudo, base64_text("sudo password")) if sudo else None,
        ),
    )
    yield from _instances(MASTER, cluster.master_addresses[1:], start=2)
    for group in cluster.node_groups:
        yield from _instances(group.name, group.addresses)


def managed_nodes(ours: GPUControlPlane) -> ManagedNodes:
    """Which nodes our agent looks after, by the module's settings. What is wrong in them, their schema says."""
    said, usual = ours.settings.get("managedNodes"), ManagedNodes()
    if not isinstance(said, Mapping):
        return usual
    label, by_default = said.get("labelKey"), said.get("enabledByDefault")
    return ManagedNodes(
        label=label if isinstance(label, str) else usual.label,
        by_default=by_default if isinstance(by_default, bool) else usual.by_default,
    )


def node_labels(cluster: ClusterDescription, group: NodeGroup) -> Labels:
    """The labels of a group's nodes, with the one by which our agent knows whether to look after their cards."""
    ours = cluster.gpu_control_plane
    if ours is None or group.gpu is None:
        return group.labels
    managed = managed_nodes(ours)
    if group.gpu.setup == "Native":
        # Cards that Deckhouse serves must not be offered by our agent, too.
        return group.labels | {managed.label: "false"}
    return group.labels if managed.by_default else {managed.label: "true"} | group.labels


def tolerations(cluster: ClusterDescription, name: str | None) -> tuple[Toleration, ...]:
    """What a pod needs to run on the nodes of a group."""
    taints = next((group.taints for group in cluster.node_groups if group.name == name), ())
    return tuple(
        Toleration(key=taint.key, operator="Equal" if taint.value else "Exists", value=taint.value, effect=taint.effect)
        for taint in taints
    )


def _masters(joining: int) -> NodeGroupDocument:
    """The group exists by then; dhctl patches what is here into it."""
    return NodeGroupDocument(
        metadata=Metadata(name=MASTER),
        spec=NodeGroupSpec(
            node_type="Static",
            static_instances=_selected(MASTER, joining),
            node_template=NodeTemplate(
                labels={_CONTROL_PLANE: "", "node-role.kubernetes.io/master": ""},
                taints=(Taint(key=_CONTROL_PLANE, effect="NoSchedule"),),
            ),
        ),
    )


def _group(cluster: ClusterDescription, group: NodeGroup) -> NodeGroupDocument:
    native = group.gpu is not None and group.gpu.setup == "Native"
    labels = node_labels(cluster, group)
    template = NodeTemplate(labels=labels, taints=group.taints)
    return NodeGroupDocument(
        metadata=Metadata(name=group.name),
        spec=NodeGroupSpec(
            node_type="Static",
            static_instances=_selected(group.name, len(group.addresses)),
            node_template=template if labels or group.taints else None,
            cri=CRI(type=RUNTIMES[group.containerd]) if group.containerd else None,
            disruptions=Disruptions(approval_mode=group.disruptions) if group.disruptions else None,
            kubelet=Kubelet(max_pods=group.max_pods) if group.max_pods else None,
            gpu=_native(group.gpu.native or NativeSharing()) if native and group.gpu else None,
        ),
    )


def _native(given: NativeSharing) -> GPU:
    slices = given.partition_count or 4
    parted = given.parted_config or ("custom" if given.custom_configs else "all-1g.5gb")
    return GPU(
        sharing=given.sharing,
        time_slicing=TimeSlicing(partition_count=slices) if given.sharing == "TimeSlicing" else None,
        mig=MIG(parted_config=parted, custom_configs=given.custom_configs) if given.sharing == "MIG" else None,
    )


def _selected(group: str, count: int) -> StaticInstances:
    return StaticInstances(count=count, label_selector=LabelSelector(match_labels={_MACHINE_LABEL: group}))


def _instances(group: str, addresses: tuple[IPv4Address, ...], start: int = 1) -> Iterator[StaticInstance]:
    for number, address in enumerate(addresses, start):
        yield StaticInstance(
            metadata=Metadata(name=f"{group}-{number}", labels={_MACHINE_LABEL: group}),
            spec=StaticInstanceSpec(
                address=str(address),
                credentials_ref=CredentialsRef(
                    api_version="deckhouse.io/v1alpha2", kind="SSHCredentials", name=_CREDENTIALS
                ),
            ),
        )
