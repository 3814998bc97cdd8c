"""Everything a decision about one node rests on, and how long inventory waits."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.gpuapproval import GPUApproval
from gpu_control_plane.api.nodefeature import NodeFeature
from gpu_control_plane.inventory.bus import BusSources
from gpu_control_plane.inventory.report import Report, Unreadable
from gpu_control_plane.kube import ObjectMeta
from gpu_control_plane.kube.fields import about
from gpu_control_plane.rules.managed_nodes import ManagedNodes


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What inventory is given. Its waiting times are in docs/settings.md."""

    node_grace_period: Annotated[
        timedelta,
        about("How long a Node, or every card of it, may be gone before its cards and their approvals are forgotten."),
    ] = timedelta(minutes=10)
    first_report_timeout: Annotated[
        timedelta, about("How long the Pod of an agent may be on a node before a missing report is a condition.")
    ] = timedelta(minutes=2)
    bus_disagreement_timeout: Annotated[
        timedelta,
        about(
            "How long the PCI bus may disagree with a node that was complete. Node Feature Discovery looks at the bus "
            "once a minute, and later than the agent."
        ),
    ] = timedelta(minutes=3)
    nfd_sync_timeout: Annotated[
        timedelta, about("How long a controller that starts waits for the NodeFeatures of Node Feature Discovery.")
    ] = timedelta(seconds=10)
    namespace: str = DEFAULT_NAMESPACE
    """Where agents run and publish their reports."""
    writes_at_once: int = 32
    """Writes under way at the same time, over all nodes."""
    nfd_namespaces: frozenset[str] = frozenset()
    """Namespaces in which Node Feature Discovery is believed, beside the usual ones."""
    managed: ManagedNodes = ManagedNodes()


class DuplicateUUID(msgspec.Struct, frozen=True, kw_only=True):
    """Another node that has a card with the same UUID."""

    node: str
    exists: bool
    ready: bool = False
    older: bool = True
    """Whether that node had the card first."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    node_exists: bool
    node_ready: bool = False
    agent_expected: bool = False
    """Whether the Node is managed and carries a label that brings the agent to it."""
    agent_pod_since: datetime | None = None
    """When the Pod of its agent was created; None where there is none."""
    feature: NodeFeature | None
    report: Report | Unreadable | None
    """What the feature says; None where there is no feature."""
    bus_sources: BusSources = BusSources()
    duplicates: Mapping[str, DuplicateUUID] = {}
    """By UUID: other nodes that have cards of this node."""
    disagreement_since: datetime | None = None
    """Since when the bus has disagreed in a way that is not written yet. Kept in memory: losing it only delays."""
    devices: tuple[GPUDevice, ...]
    approvals: tuple[GPUApproval, ...] = ()
    """What was decided about cards of this node before they were there."""
    state: GPUNodeState | None
    now: datetime

    @property
    def known(self) -> dict[str, GPUDevice]:
        """The cards that have a GPUDevice, by address, without those that are being deleted."""
        return {device.spec.pci_address: device for device in self.devices if not device.deleting}

    @property
    def about(self) -> GPUNodeState:
        """The object that Events about the node go to."""
        return self.state or GPUNodeState(metadata=ObjectMeta(name=self.node))
