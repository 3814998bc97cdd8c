"""Keeps the labels of NVIDIA's feature discovery on the Node, for schedulers and charts that know them."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gpu_control_plane.agent.node.picture import Picture
from gpu_control_plane.agent.node.views import LocalNode
from gpu_control_plane.agent.units import Unit
from gpu_control_plane.agent.vendors.nvidia.labels import LabelFacts, MIGStrategy, labels
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


def label_facts(picture: Picture, machine: str, offered: Iterable[Unit]) -> LabelFacts:
    """What the labels of the node follow from."""
    replicas: dict[str, int] = {}
    for unit in offered:
        seen = picture.seen.get(unit.card)
        if seen is not None and unit.mode is Mode.TIME_SLICE:
            replicas[seen.address] = replicas.get(seen.address, 0) + 1
    return LabelFacts(
        cards=picture.cards(),
        driver=picture.known_facts.driver,
        details={card.address: card.details for card in picture.seen.values()},
        machine=machine,
        replicas=replicas,
        strategy=MIGStrategy.MIXED if any(card.is_cut for card in picture.seen.values()) else MIGStrategy.NONE,
        instances={card.address: card.instances for card in picture.seen.values()},
    )


def held(node: Mapping[str, str]) -> dict[str, str]:
    """The labels of a Node that are ours to change."""
    return {name: value for name, value in node.items() if _OURS.fullmatch(name)}


class Labeller:
    """Writes where labels differ, and takes away what no longer holds."""

    def __init__(self, client: Client, machine: str, now: Callable[[], float] = time.time) -> None:
        self._client = client
        self._machine = machine
        self._now = now

    async def label(self, node: LocalNode, picture: Picture, offered: Iterable[Unit]) -> None:
        before = held(node.metadata.labels)
        fresh = labels(label_facts(picture, self._machine, offered), before, self._now())
        changes: dict[str, str | None] = dict.fromkeys(before.keys() - fresh.keys())
        changes |= {name: value for name, value in fresh.items() if before.get(name) != value}
        if changes:
            await self._client.patch(LocalNode, node.name, {"metadata": {"labels": changes}})
