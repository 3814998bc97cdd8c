"""One moment of a node as inventory sees it, and how patient inventory is."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.nodefeature import NodeFeature
from gpu_control_plane.inventory.bus import Witnesses
from gpu_control_plane.inventory.report import Report, Unreadable
from gpu_control_plane.kube import ObjectMeta
from gpu_control_plane.rules.managed_nodes import ManagedNodes


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    node_grace_period: timedelta = timedelta(minutes=10)
    """How long a Node may be gone before its cards, and with them their approvals, are forgotten."""
    report_patience: timedelta = timedelta(minutes=2)
    """How long an agent may take to report for the first time before that is told."""
    bus_patience: timedelta = timedelta(minutes=3)
    """How long Node Feature Discovery may disagree with the agent: it looks once a minute, and later than the agent."""
    writes_at_once: int = 32
    """Writes under way at the same time, over all nodes."""
    nfd_namespaces: frozenset[str] = frozenset()
    """Namespaces in which Node Feature Discovery is believed, beside the usual ones."""
    managed: ManagedNodes = ManagedNodes()


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """Another node that has a card with the same UUID."""

    node: str
    exists: bool
    ready: bool = False
    senior: bool = True
    """Whether it had the card first."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a decision about a node rests on."""

    node: str
    node_exists: bool
    node_ready: bool = False
    labelled: bool = False
    """Whether the Node carries a label that brings the agent to it, and none that keeps it away."""
    agent_since: datetime | None = None
    """When the pod of its agent was made; None where there is none."""
    feature: NodeFeature | None
    report: Report | Unreadable | None
    """What the feature says; None where there is no feature."""
    witnesses: Witnesses = Witnesses()
    elsewhere: Mapping[str, Elsewhere] = {}
    """By UUID: where cards of this node are known, too."""
    doubted_since: datetime | None = None
    """Since when there has been a doubt that was not told; forgetting it only delays."""
    devices: tuple[GPUDevice, ...]
    state: GPUNodeState | None
    now: datetime

    @property
    def known(self) -> dict[str, GPUDevice]:
        """The cards that have an object, by address. What is being deleted is no longer known."""
        return {device.spec.pci_address: device for device in self.devices if not device.deleting}

    @property
    def about(self) -> GPUNodeState:
        """What to speak of when the node is meant."""
        return self.state or GPUNodeState(metadata=ObjectMeta(name=self.node))
