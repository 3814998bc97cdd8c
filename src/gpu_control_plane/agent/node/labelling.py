"""Keeps the labels of NVIDIA's feature discovery on the Node, for schedulers and charts that know them."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot
from gpu_control_plane.agent.units import Unit
from gpu_control_plane.agent.vendors.nvidia.labels import LabelFacts, MIGStrategy, labels
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.kube.client import Client

_OURS: Final = re.compile(
    r"nvidia\.com/(?:"
    r"cuda\.(?:driver|runtime)(?:-version)?\.(?:major|minor|rev|revision|full)"
    r"|gfd\.timestamp|mig\.capable|mig\.strategy|mps\.capable"
    r"|vgpu\.(?:present|host-driver-version|host-driver-branch)"
    r"|gpu\.(?:machine|mode|clique|family|compute\.major|compute\.minor)"
    r"|(?:gpu|mig-[^/]+)\.(?:product|count|replicas|memory|sharing-strategy|multiprocessors|slices\.[a-z]+|engines\.[a-z]+)"
    r")"
)
"""What feature discovery writes, and nothing else: people and operators have labels of their own beside these."""


def label_facts(hardware: HardwareSnapshot, machine: str, advertised: Iterable[Unit]) -> LabelFacts:
    """What the labels of the node are derived from."""
    replicas: dict[str, int] = {}
    for unit in advertised:
        card = hardware.observed.get(unit.card)
        if card is not None and unit.mode is Mode.TIME_SLICE:
            replicas[card.address] = replicas.get(card.address, 0) + 1
    cards = hardware.observed.values()
    return LabelFacts(
        cards=hardware.cards(),
        driver=hardware.node_facts.driver,
        details={card.address: card.details for card in cards},
        machine=machine,
        replicas=replicas,
        strategy=MIGStrategy.MIXED if any(card.mig_enabled for card in cards) else MIGStrategy.NONE,
        instances={card.address: card.instances for card in cards},
    )


def feature_labels(node: Mapping[str, str]) -> dict[str, str]:
    """The labels of a Node that are ours to change."""
    return {name: value for name, value in node.items() if _OURS.fullmatch(name)}


class Labeller:
    """Writes where labels differ, and takes away what no longer holds."""

    def __init__(self, client: Client, machine: str, now: Callable[[], float] = time.time) -> None:
        self._client = client
        self._machine = machine
        self._now = now

    async def label(self, node: NodeView, hardware: HardwareSnapshot, advertised: Iterable[Unit]) -> None:
        before = feature_labels(node.metadata.labels)
        fresh = labels(label_facts(hardware, self._machine, advertised), before, self._now())
        changes: dict[str, str | None] = dict.fromkeys(before.keys() - fresh.keys())
        changes |= {name: value for name, value in fresh.items() if before.get(name) != value}
        if changes:
            await self._client.patch(NodeView, node.name, {"metadata": {"labels": changes}})
