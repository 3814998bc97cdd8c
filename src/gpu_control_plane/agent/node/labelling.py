"""Keeps the vendor's feature labels on the Node, for schedulers and charts that know them."""

import time
from collections.abc import Callable, Iterable, Mapping

from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot
from gpu_control_plane.agent.units import Unit
from gpu_control_plane.agent.vendors.interface import LabelFacts
from gpu_control_plane.agent.vendors.registry import supported
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.kube.client import Client


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
        instances={card.address: card.instances for card in cards},
    )


def feature_labels(node: Mapping[str, str]) -> dict[str, str]:
    """The labels of a Node that are ours to change."""
    return {name: value for name, value in node.items() if _is_ours(name)}


def _is_ours(name: str) -> bool:
    return any(support.owns_label(name) for support in supported().values())


class Labeller:
    """Writes where labels differ, and takes away what no longer holds."""

    def __init__(self, client: Client, machine: str, now: Callable[[], float] = time.time) -> None:
        self._client = client
        self._machine = machine
        self._now = now

    async def label(self, node: NodeView, hardware: HardwareSnapshot, advertised: Iterable[Unit]) -> None:
        before, facts = feature_labels(node.metadata.labels), label_facts(hardware, self._machine, advertised)
        fresh: dict[str, str] = {}
        for support in supported().values():
            of_vendor = {name: value for name, value in before.items() if support.owns_label(name)}
            fresh |= support.labels(facts, of_vendor, self._now())
        changes: dict[str, str | None] = dict.fromkeys(before.keys() - fresh.keys())
        changes |= {name: value for name, value in fresh.items() if before.get(name) != value}
        if changes:
            await self._client.patch(NodeView, node.name, {"metadata": {"labels": changes}})
