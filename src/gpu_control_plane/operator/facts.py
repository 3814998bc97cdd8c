"""What a Node is, as far as the software stack cares: card, operating system, kernel and container runtime. Pure.

NFD's labels say most of it. A node whose labels do not say something simply lacks that fact here; whoever needs it
says so in a sentence that names the node.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.names import Label
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import PCI_LABELS, TRUE, NodeLabel
from gpu_control_plane.kube.fields import OpenEnum

_CARD_LABELS: Final = (*PCI_LABELS, Label.GPU_PRESENT.value)
_MAJOR_ONLY: Final = frozenset({"ol", "rocky", "rhel"})


class Runtime(OpenEnum):
    """What runs containers on a node."""

    CONTAINERD = "containerd", "containerd."
    CRIO = "crio", "CRI-O."
    DOCKER = "docker", "Docker."


class System(msgspec.Struct, frozen=True, order=True):
    """An operating system: `tag` is how images for it are called."""

    id: str
    version: str

    @property
    def tag(self) -> str:
        """`ubuntu24.04`, `rhel9`: of a family that promises compatibility only the major version counts."""
        version = self.version.split(".", 1)[0] if self.major_only else self.version
        return f"{self.id}{version}"

    @property
    def major_only(self) -> bool:
        return self.id in _MAJOR_ONLY

    @property
    def selector(self) -> dict[str, str]:
        """Labels of the nodes with this system."""
        if self.major_only:
            return {NodeLabel.OS_ID: self.id, NodeLabel.OS_MAJOR: self.version.split(".", 1)[0]}
        return {NodeLabel.OS_ID: self.id, NodeLabel.OS_VERSION: self.version}


class NodeKind(msgspec.Struct, frozen=True):
    """What is the same on all nodes that can share an operand."""

    system: System | None = None
    kernel: str = ""
    runtime: Runtime = Runtime.CONTAINERD
    ostree: str = ""


def has_card(labels: Mapping[str, str]) -> bool:
    """Whether the PCI bus of the node shows a card, by NFD's word or by that of our own discovery."""
    return any(labels.get(label) == TRUE for label in _CARD_LABELS)


def gpu_present(labels: Mapping[str, str]) -> bool:
    """Whether the node counts as a GPU node: it carries our word for it."""
    return labels.get(NodeLabel.PRESENT) == TRUE


def kind_of(node: Node) -> NodeKind:
    labels = node.metadata.labels
    os_id, version = labels.get(NodeLabel.OS_ID, ""), labels.get(NodeLabel.OS_VERSION, "")
    return NodeKind(
        system=System(os_id, version) if os_id and version else None,
        kernel=labels.get(NodeLabel.KERNEL, ""),
        runtime=runtime_of(node),
        ostree=labels.get(NodeLabel.OSTREE, ""),
    )


def runtime_of(node: Node) -> Runtime:
    """The runtime by what the kubelet says of it, such as `cri-o://1.36.0`; containerd where it says nothing known."""
    word = node.status.node_info.container_runtime_version.partition("://")[0]
    return {"cri-o": Runtime.CRIO, "docker": Runtime.DOCKER}.get(word, Runtime.CONTAINERD)
