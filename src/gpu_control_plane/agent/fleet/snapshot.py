"""One simulated node at one moment: everything its agent decides on, so that all decisions see the same picture."""

from collections.abc import Sequence

import msgspec

from gpu_control_plane.agent.fleet.placement import Spot
from gpu_control_plane.agent.fleet.pods import grants, users
from gpu_control_plane.agent.health import Verdict, verdict
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import Machine, card_ids
from gpu_control_plane.agent.units import Unit
from gpu_control_plane.agent.views import Card, Node, Orders, Pod


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The objects about a node, and what follows from them."""

    node: Node
    machine: Machine
    orders: Orders | None
    cards: dict[str, Card]
    pods: tuple[Pod, ...]
    """Those bound to the node that have not ended, oldest first."""
    addresses: dict[str, str]
    """Where the cards of the machine are, by name."""
    verdicts: dict[str, Verdict]
    spots: dict[str, Spot]
    """The cards that could be handed out if the orders say so."""
    held: set[Unit]
    """Cards that pods were given."""


def snapshot(
    node: Node, machine: Machine, orders: Orders | None, cards: Sequence[Card], pods: Sequence[Pod]
) -> Snapshot:
    backend = SimulatedBackend(node.name, machine)
    addresses = card_ids(node.name, machine)
    verdicts = {name: verdict(backend.signals(address)) for name, address in addresses.items()}
    by_name = {card.name: card for card in cards}
    ordered = tuple(sorted(pods, key=lambda pod: (str(pod.metadata.creation_timestamp), pod.key)))
    return Snapshot(
        node=node,
        machine=machine,
        orders=orders,
        cards=by_name,
        pods=ordered,
        addresses=addresses,
        verdicts=verdicts,
        spots=_usable(backend, addresses, by_name, verdicts),
        held={
            Unit(user.resource, card, card) for pod in ordered for card, user in users(pod, grants(pod) or ()).items()
        },
    )


def _usable(
    backend: SimulatedBackend, addresses: dict[str, str], cards: dict[str, Card], verdicts: dict[str, Verdict]
) -> dict[str, Spot]:
    """The cards that work and are the ones the cluster knows: an unknown one at the same address has no approval."""
    usable: dict[str, Spot] = {}
    present = {hardware.pci.address: hardware for hardware in backend.cards()}
    for name, address in addresses.items():
        card, hardware = cards.get(name), present.get(address)
        if card is None or card.deleting or hardware is None or not verdicts[name].healthy:
            continue
        known = card.status.hardware
        if known is None or known.uuid in (None, hardware.uuid):
            usable[name] = Spot(address, name, -1 if hardware.numa_node is None else hardware.numa_node)
    return usable
