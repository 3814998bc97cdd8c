"""A report is used as a whole or not at all."""

import msgspec
import pytest

from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.nodefeature import NODE_LABEL, NodeFacts, NodeFeature, node_feature
from gpu_control_plane.inventory.report import Report, Unreadable, read_report
from gpu_control_plane.kube import ObjectMeta
from unit.inventory.model import FACTS, NODE, card

ONE = msgspec.structs.replace(FACTS, bus_cards=1)


def listed(*cards: Hardware, count: int = 1) -> NodeFacts:
    """A bus with these cards, and a count."""
    return msgspec.structs.replace(FACTS, bus_cards=count, bus=tuple(one.pci for one in cards))


@pytest.mark.parametrize("address", ["00000000:18:00.0", "0000:18:00.0"])
def test_addresses_are_written_one_way(address: str) -> None:
    pci = msgspec.structs.replace(card().pci, address=address)
    facts = msgspec.structs.replace(ONE, bus=(pci,))
    report = read_report(NODE, NodeFeature(spec=node_feature(NODE, facts, (card(pci=pci),))))
    assert isinstance(report, Report)
    assert report.bus is not None
    assert report.cards[0].pci.address == report.bus[0].address == pci_address(0)


@pytest.mark.parametrize(
    ("feature", "why"),
    [
        (NodeFeature(spec=node_feature("worker-4", ONE, (card(),))), "about the node worker-4, not about worker-3"),
        (
            NodeFeature(metadata=ObjectMeta(labels={NODE_LABEL: "worker-5"}), spec=node_feature(NODE, ONE, (card(),))),
            "about the node worker-5, not about worker-3",
        ),
        (NodeFeature(), "busCards"),
        (NodeFeature(spec=node_feature(NODE, listed(card(0), card(1)), (card(),))), "show 1 cards, at 2 places"),
        (NodeFeature(spec=node_feature(NODE, listed(card(), card(), count=2), (card(),))), "show 2 cards, at 2 places"),
        (NodeFeature(spec=node_feature(NODE, ONE, (card(pci=msgspec.structs.replace(card().pci, address="7")),))), "7"),
    ],
    ids=[
        "about another node",
        "labelled for another node",
        "empty",
        "more places than cards",
        "a place twice",
        "bad address",
    ],
)
def test_nonsense_has_a_reason(feature: NodeFeature, why: str) -> None:
    report = read_report(NODE, feature)
    assert isinstance(report, Unreadable)
    assert why in report.why
