"""What the software stack needs to know of a Node: card, operating system, kernel and container runtime. Pure.

Labels of Node Feature Discovery say most of it. A fact that no label says is empty here; the code that needs it reports
an error that names the node.
"""

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.names import Label
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import AGENT, DEPLOY, PCI_LABELS, TRUE, NodeLabel

DEPLOY_DRIVER: Final = f"{DEPLOY}driver"
DEPLOY_VGPU_MANAGER: Final = f"{DEPLOY}vgpu-manager"
DEPLOY_VALIDATOR: Final = f"{DEPLOY}operator-validator"
_CARD_LABELS: Final = (*PCI_LABELS, Label.GPU_PRESENT.value)
_PAUSED: Final = "paused-for-"
_MAJOR_ONLY: Final = frozenset({"ol", "rocky", "rhel"})


class ContainerRuntime(enum.StrEnum):
    CONTAINERD = "containerd"
    CRIO = "crio"
    DOCKER = "docker"


class OperatingSystem(msgspec.Struct, frozen=True, order=True):
    """An operating system; `tag` is its part in the tags of images."""

    id: str
    version: str

    @property
    def tag(self) -> str:
        """`ubuntu24.04`, `rhel9`: of distributions that keep compatible within a major version only that counts."""
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
    """The facts by which nodes differ for operands: nodes of one kind can share a DaemonSet."""

    system: OperatingSystem | None = None
    kernel: str = ""
    runtime: ContainerRuntime = ContainerRuntime.CONTAINERD
    ostree: str = ""
    driver: bool = True
    """Whether they get a driver container."""
    vgpu: bool = True
    """Whether they get a vGPU manager."""
    agent: bool = False
    """Whether our agent hands out their cards."""


def has_card(labels: Mapping[str, str]) -> bool:
    """Whether the node has a card on its PCI bus, by a label of Node Feature Discovery or of our own discovery."""
    return any(labels.get(label) == TRUE for label in _CARD_LABELS)


def is_gpu_node(labels: Mapping[str, str]) -> bool:
    """Whether labelling has marked the node as a GPU node."""
    return labels.get(NodeLabel.PRESENT) == TRUE


def selects(node_selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a nodeSelector matches a node with these labels."""
    return all(labels.get(key) == value for key, value in node_selector.items())


def node_kind(node: Node) -> NodeKind:
    labels = node.metadata.labels
    os_id, version = labels.get(NodeLabel.OS_ID, ""), labels.get(NodeLabel.OS_VERSION, "")
    return NodeKind(
        system=OperatingSystem(os_id, version) if os_id and version else None,
        kernel=labels.get(NodeLabel.KERNEL, ""),
        runtime=container_runtime(node),
        ostree=labels.get(NodeLabel.OSTREE, ""),
        driver=without_pause(labels.get(DEPLOY_DRIVER, "")) == TRUE,
        vgpu=without_pause(labels.get(DEPLOY_VGPU_MANAGER, "")) == TRUE,
        agent=without_pause(labels.get(DEPLOY_VALIDATOR, "")) == AGENT,
    )


def without_pause(value: str) -> str:
    """The value of a deploy label before its operand was paused: driver managers replace `true` by `paused-for-…`, and
    append it to every other value, as in `agent_paused-for-…`."""
    before, pause, _ = value.partition(_PAUSED)
    return before.rstrip("_") or TRUE if pause else value


def container_runtime(node: Node) -> ContainerRuntime:
    """The runtime that the kubelet reports, such as `cri-o://1.36.0`; containerd where it reports no known one."""
    name = node.status.node_info.container_runtime_version.partition("://")[0]
    return _RUNTIMES.get(name, ContainerRuntime.CONTAINERD)


_RUNTIMES: Final = {"cri-o": ContainerRuntime.CRIO, "docker": ContainerRuntime.DOCKER}
