"""Facts survive their way through a NodeFeature, and one that makes no sense is an error with a reason."""

import msgspec
import pytest

from gpu_control_plane.api.examples import h200
from gpu_control_plane.api.gpunodestate import (
    AgentFunctions,
    Driver,
    DriverSource,
    Injection,
    Monitoring,
    MonitoringSource,
    Toolkit,
)
from gpu_control_plane.api.nodefeature import (
    CARDS,
    NODE,
    Attributes,
    Element,
    Features,
    Instances,
    NodeFacts,
    NodeFeature,
    NodeFeatureSpec,
    bus_feature,
    node_feature,
    read_bus,
    read_cards,
    read_facts,
)

FACTS = NodeFacts(
    bus_cards=8,
    boot_id="b",
    agent_version="0.1.0",
    driver=Driver(version="580.159.04", cuda_version="13.0", source=DriverSource.HOST),
    toolkit=Toolkit(injection=Injection.CDI, runtime="containerd://2.4.2"),
    monitoring=Monitoring(source=MonitoringSource.AGENT),
    agent=AgentFunctions(labels=True, checks=False, burn_in=False, exporter=True),
)


def test_what_is_published_is_what_is_read() -> None:
    cards = tuple(h200("worker-3", index) for index in range(8))
    for bus in (None, tuple(card.pci for card in cards), ()):
        facts = msgspec.structs.replace(FACTS, bus=bus)
        published = NodeFeature(spec=node_feature("worker-3", facts, cards))
        received = msgspec.json.decode(msgspec.json.encode(published), type=NodeFeature)
        assert read_cards(received) == cards
        assert read_facts(received) == facts


@pytest.mark.parametrize(
    ("published", "read"),
    [
        ({}, None),
        ({"agent.checks": "false"}, AgentFunctions(checks=False)),
        ({"agent.checks": "true", "agent.shaders": "true"}, AgentFunctions(checks=True)),
    ],
    ids=["an agent that does not say", "one that says a part", "a later one, which does more"],
)
def test_agents_of_other_releases_can_be_read(published: dict[str, str], read: AgentFunctions | None) -> None:
    elements = {"busCards": "1", **published}
    features = Features(attributes={NODE: Attributes(elements=elements)})
    assert read_facts(NodeFeature(spec=NodeFeatureSpec(features=features))).agent == read


def test_a_card_without_a_driver_says_only_what_the_bus_says() -> None:
    bare = msgspec.structs.replace(
        h200("worker-3", 0), uuid=None, memory_mib=None, compute_capability=None, architecture=None, mig=None
    )
    bare = msgspec.structs.replace(bare, numa_node=None, nvlink_peers=())
    assert read_cards(NodeFeature(spec=node_feature("worker-3", NodeFacts(bus_cards=1), (bare,)))) == (bare,)


def test_the_order_of_discovery_does_not_matter() -> None:
    cards = tuple(h200("worker-3", index) for index in range(8))
    assert node_feature("worker-3", FACTS, cards) == node_feature("worker-3", FACTS, cards[::-1])


def test_what_discovery_publishes_is_what_is_read_whatever_its_order() -> None:
    cards = tuple(h200("worker-3", index).pci for index in range(8))
    published = NodeFeature(spec=bus_feature(cards[::-1]))
    assert read_bus(msgspec.json.decode(msgspec.json.encode(published), type=NodeFeature)) == cards
    assert published.spec.features.instances["gpu.bus"].elements[0].attributes == {
        "vendor": "10de",
        "device": "2335",
        "class": "0302",
        "address": cards[0].address,
    }


@pytest.mark.parametrize(
    "attributes",
    [{}, {"vendor": "NVIDIA"}, {"pci": "x", "pci.vendor": "10de"}, {"mig.placements": "x", "mig.capable": "perhaps"}],
)
def test_nonsense_is_an_error_with_a_reason(attributes: dict[str, str]) -> None:
    features = Features(
        instances={CARDS: Instances(elements=(Element(attributes=attributes),))}, attributes={"x": Attributes()}
    )
    with pytest.raises(ValueError, match=r"."):
        read_cards(NodeFeature(spec=NodeFeatureSpec(features=features)))
