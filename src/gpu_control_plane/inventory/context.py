"""What a decision about a node needs beside its own objects: its agent's Pod, other sources about its PCI bus, and
other nodes that report the same cards."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import structlog

from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NodeFeature, discovery_name
from gpu_control_plane.api.pod import AGENT, BY_NODE, Pod
from gpu_control_plane.inventory.bus import BusSources
from gpu_control_plane.inventory.identity import uuid_of
from gpu_control_plane.inventory.nfd import NFDInventory
from gpu_control_plane.inventory.report import Report, Unreadable, read_discovered_bus
from gpu_control_plane.inventory.snapshot import DuplicateUUID
from gpu_control_plane.kube import Cache, Key

BY_UUID: Final = "uuid"

_log = structlog.get_logger(component="inventory")


def uuid_index(device: GPUDevice) -> Iterable[str]:
    """The function of the index `BY_UUID`."""
    uuid = uuid_of(device)
    return (uuid,) if uuid else ()


class NodeContext:
    """Reads caches, decides nothing."""

    def __init__(
        self,
        features: Cache[NodeFeature],
        nodes: Cache[Node],
        devices: Cache[GPUDevice],
        pods: Cache[Pod],
        nfd: NFDInventory,
        *,
        namespace: str,
    ) -> None:
        self._features = features
        self._nodes = nodes
        self._devices = devices
        self._pods = pods
        self._nfd = nfd
        self._namespace = namespace

    def agent_pod_since(self, node: str) -> datetime | None:
        """When the first of the agent's Pods on the node was created."""
        here = self._pods.by_index(BY_NODE, node)
        created = (pod.metadata.creation_timestamp for pod in here if pod.component == AGENT)
        return min((moment for moment in created if moment is not None), default=None)

    def bus_sources(self, node: str) -> BusSources:
        """What other programs than the agent publish about the bus. What cannot be read is left out."""
        try:
            discovered = read_discovered_bus(self._features.get(discovery_name(node), self._namespace))
        except ValueError as error:
            _log.warning("the NodeFeature of discovery cannot be read", node=node, why=str(error))
            discovered = None
        return BusSources(
            discovered=discovered, nfd_counts=self._nfd.counts(node), nfd_awaited=self._nfd.is_awaited(node)
        )

    def duplicates(
        self, node: str, known: tuple[GPUDevice, ...], report: Report | Unreadable | None
    ) -> dict[str, DuplicateUUID]:
        """Other nodes that have cards which are known or reported here, by UUID."""
        held = {uuid: device for device in known for uuid in uuid_index(device)}
        reported = {card.uuid for card in report.cards if card.uuid} if isinstance(report, Report) else set()
        found = ((uuid, self._duplicate(node, uuid, held.get(uuid))) for uuid in sorted(held.keys() | reported))
        return {uuid: other for uuid, other in found if other is not None}

    def nodes_of_card(self, device: GPUDevice) -> set[Key]:
        """The node of a card, and every other that has a card with the same UUID."""
        others = (other for uuid in uuid_index(device) for other in self._devices.by_index(BY_UUID, uuid))
        return {Key(device.spec.node_name), *(Key(other.spec.node_name) for other in others)}

    def nodes_with_its_cards(self, node: Node) -> set[Key]:
        """A node, and every other that has one of its cards: which of them is believed depends on both."""
        cards = self._devices.by_index(BY_NODE, node.name)
        return {Key(node.name), *(key for card in cards for key in self.nodes_of_card(card))}

    def _duplicate(self, node: str, uuid: str, own: GPUDevice | None) -> DuplicateUUID | None:
        """The other node that has the card; of several the one that is believed most."""
        found = []
        for other in self._devices.by_index(BY_UUID, uuid):
            name = other.spec.node_name
            if name == node or other.deleting:
                continue
            there = self._nodes.get(name)
            older = own is None or _age_order(other) < _age_order(own)
            ready = there is not None and there.ready
            found.append(DuplicateUUID(node=name, exists=there is not None, ready=ready, older=older))
        return max(found, key=lambda one: (one.exists, one.ready, one.older, one.node), default=None)


def _age_order(device: GPUDevice) -> tuple[float, str]:
    created = device.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0, device.name
