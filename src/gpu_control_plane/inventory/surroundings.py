"""What lies around a node: its agent's pod, others who see its PCI bus, and other nodes that have its cards."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import structlog

from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NAMESPACE, NodeFeature, discovery_name
from gpu_control_plane.api.pod import AGENT, BY_NODE, Pod
from gpu_control_plane.inventory.bus import Witnesses
from gpu_control_plane.inventory.nfd import SecondOpinion
from gpu_control_plane.inventory.report import Report, Unreadable, read_places
from gpu_control_plane.inventory.snapshot import Elsewhere
from gpu_control_plane.kube import Cache, Key

BY_UUID: Final = "uuid"

_log = structlog.get_logger(component="inventory")


def uuids(device: GPUDevice) -> Iterable[str]:
    """What a card is filed under, to find it wherever it turns up."""
    hardware = device.status.hardware
    return (hardware.uuid,) if hardware is not None and hardware.uuid else ()


class Surroundings:
    """Reads caches, decides nothing."""

    def __init__(
        self,
        features: Cache[NodeFeature],
        nodes: Cache[Node],
        devices: Cache[GPUDevice],
        pods: Cache[Pod],
        opinion: SecondOpinion,
    ) -> None:
        self._features = features
        self._nodes = nodes
        self._devices = devices
        self._pods = pods
        self._opinion = opinion

    def agent_since(self, node: str) -> datetime | None:
        """When the first of the agent's pods that are on the node was made."""
        here = self._pods.by_index(BY_NODE, node)
        made = (pod.metadata.creation_timestamp for pod in here if pod.component == AGENT)
        return min((moment for moment in made if moment is not None), default=None)

    def witnesses(self, node: str) -> Witnesses:
        """What others than the agent see on the bus. What makes no sense is no witness."""
        try:
            places = read_places(self._features.get(discovery_name(node), NAMESPACE))
        except ValueError as error:
            _log.warning("what discovery says makes no sense", node=node, why=str(error))
            places = None
        return Witnesses(places=places, counts=self._opinion.of(node), awaited=self._opinion.is_awaited(node))

    def elsewhere(
        self, node: str, known: tuple[GPUDevice, ...], report: Report | Unreadable | None
    ) -> dict[str, Elsewhere]:
        """Other nodes that have cards which are known here, or reported."""
        held = {uuid: device for device in known for uuid in uuids(device)}
        reported = {card.uuid for card in report.cards if card.uuid} if isinstance(report, Report) else set()
        found = ((uuid, self._other(node, uuid, held.get(uuid))) for uuid in sorted(held.keys() | reported))
        return {uuid: other for uuid, other in found if other is not None}

    def concerned(self, device: GPUDevice) -> set[Key]:
        """The node of a card, and every other that has a card with the same UUID."""
        twins = (twin for uuid in uuids(device) for twin in self._devices.by_index(BY_UUID, uuid))
        return {Key(device.spec.node_name), *(Key(twin.spec.node_name) for twin in twins)}

    def rivals(self, node: Node) -> set[Key]:
        """A node, and every other that has one of its cards: whose word counts depends on both."""
        cards = self._devices.by_index(BY_NODE, node.name)
        return {Key(node.name), *(key for card in cards for key in self.concerned(card))}

    def _other(self, node: str, uuid: str, own: GPUDevice | None) -> Elsewhere | None:
        """The one whose word counts most, where there are several."""
        found = []
        for twin in self._devices.by_index(BY_UUID, uuid):
            place = twin.spec.node_name
            if place == node or twin.deleting:
                continue
            there = self._nodes.get(place)
            senior = own is None or _seniority(twin) < _seniority(own)
            ready = there is not None and there.ready
            found.append(Elsewhere(node=place, exists=there is not None, ready=ready, senior=senior))
        return max(found, key=lambda one: (one.exists, one.ready, one.senior, one.node), default=None)


def _seniority(device: GPUDevice) -> tuple[float, str]:
    born = device.metadata.creation_timestamp
    return born.timestamp() if born is not None else 0.0, device.name
