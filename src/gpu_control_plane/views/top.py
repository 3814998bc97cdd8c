"""Which cards compute right now, node by node: what `kubectl gpu top` draws."""

from collections.abc import Iterable

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.views.cards import CardRow, card_row
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.loads import Load


class NodeLoad(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cards of a node and what they do."""

    node: str
    cards: tuple[CardRow, ...]
    """By address."""

    @property
    def held(self) -> int:
        return sum(card.load.held for card in self.cards)

    @property
    def hottest(self) -> int | None:
        """Degrees Celsius; None where none is measured."""
        return max((card.readings.temperature or 0 for card in self.cards if card.readings), default=None) or None

    @property
    def power(self) -> int | None:
        """Watts of all its cards; None where none is measured."""
        return sum(card.readings.power or 0 for card in self.cards if card.readings) or None

    @property
    def notable(self) -> tuple[CardRow, ...]:
        """Cards that a person would look at: held and idle, or out of service with a fault."""
        return tuple(card for card in self.cards if card.load is Load.HELD_IDLE or card.state == "Faulted")


def node_loads(fleet: Fleet, *, namespace: str | None = None, pool: str | None = None) -> list[NodeLoad]:
    """The nodes by name, with the cards that pods of the namespace hold, and that are in the pool."""
    by_node: dict[str, list[CardRow]] = {}
    for card in sorted(fleet.cards.values(), key=lambda card: (card.spec.node_name, card.spec.pci_address)):
        if _wanted(card, namespace, pool):
            by_node.setdefault(card.spec.node_name, []).append(card_row(card))
    return [NodeLoad(node=node, cards=tuple(cards)) for node, cards in by_node.items()]


def count_loads(nodes: Iterable[NodeLoad]) -> dict[Load, int]:
    """How many cards do what."""
    counts = dict.fromkeys(Load, 0)
    for node in nodes:
        for card in node.cards:
            counts[card.load] += 1
    return counts


def _wanted(card: GPUDevice, namespace: str | None, pool: str | None) -> bool:
    if pool is not None and (card.status.pool_ref is None or card.status.pool_ref.name != pool):
        return False
    return namespace is None or any(user.namespace == namespace for user in card.status.used_by)
