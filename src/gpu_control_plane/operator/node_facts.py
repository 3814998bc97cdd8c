"""What a Node is, as far as the software stack cares: card, operating system, kernel and container runtime. Pure.

NFD's labels say most of it. A node whose labels do not say something simply lacks that fact here; whoever needs it
says so in a sentence that names the node.
"""

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.names import Label
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import AGENT, DEPLOY, PCI_LABELS, TRUE, NodeLabel

DRIVER: Final = f"{DEPLOY}driver"
VGPU_MANAGER: Final = f"{DEPLOY}vgpu-manager"
VALIDATOR: Final = f"{DEPLOY}operator-validator"
_CARD_LABELS: Final = (*PCI_LABELS, Label.GPU_PRESENT.value)
_PAUSED: Final = "paused-for-"
_MAJOR_ONLY: Final = frozenset({"ol", "rocky", "rhel"})


class Runtime(enum.StrEnum):
    """What runs containers on a node."""

    CONTAINERD = "containerd"
    CRIO = "crio"
    DOCKER = "docker"


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
    driver: bool = True
    """Whether a driver container is meant for them."""
    vgpu: bool = True
    """Whether a vGPU manager is meant for them."""
    agent: bool = False
    """Whether our agent hands out their cards."""


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
        driver=before_pause(labels.get(DRIVER, "")) == TRUE,
        vgpu=before_pause(labels.get(VGPU_MANAGER, "")) == TRUE,
        agent=before_pause(labels.get(VALIDATOR, "")) == AGENT,
    )


def before_pause(value: str) -> str:
    """What a deploy label says when nobody pauses its operand: driver managers write `paused-for-…` over `true`, and
    hang it on to every other word, as in `agent_paused-for-…`."""
    word, pause, _ = value.partition(_PAUSED)
    return word.rstrip("_") or TRUE if pause else value


def runtime_of(node: Node) -> Runtime:
    """The runtime by what the kubelet says of it, such as `cri-o://1.36.0`; containerd where it says nothing known."""
    word = node.status.node_info.container_runtime_version.partition("://")[0]
    return _RUNTIMES.get(word, Runtime.CONTAINERD)


_RUNTIMES: Final = {"cri-o": Runtime.CRIO, "docker": Runtime.DOCKER}
