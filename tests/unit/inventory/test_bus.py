"""The PCI bus compared with the driver: InventoryComplete for each disagreement, and what happens to the cards."""

from collections.abc import Callable, Mapping
from datetime import timedelta

import msgspec
import pytest

from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.gpudevice import PCI, Hardware
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.inventory.bus import BusSources
from gpu_control_plane.inventory.nfd import (
    Device,
    Devices,
    DiscoveredNode,
    Element,
    Features,
    Instances,
    Spec,
    is_trusted,
)
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.rules.node_readiness import is_report_observed
from unit.inventory.model import FACTS, NODE, SETTINGS, NodeModel, card

FIRST, SECOND, THIRD = (pci_address(index) for index in range(3))
MODEL = "10de:2335"


def on_bus(*indices: int) -> tuple[PCI, ...]:
    return tuple(card(index).pci for index in indices)


@pytest.fixture
def model() -> NodeModel:
    """A node with three cards, everything settled."""
    made = NodeModel()
    made.report(*(card(index, f"GPU-{index}") for index in range(3)))
    made.settle()
    made.events.clear()
    return made


def two(model: NodeModel, **report: object) -> None:
    """The driver knows the first two cards only."""
    model.report(card(0, "GPU-0"), card(1, "GPU-1"), **report)  # type: ignore[arg-type]


def ignored(model: NodeModel) -> None:
    model.ignore(THIRD)
    two(model, bus=3)


def ignored_but_another_is_missing(model: NodeModel) -> None:
    model.ignore(THIRD)
    model.report(card(0, "GPU-0"), bus=3)


def counted(counts: Mapping[str, int], reported: int = 3) -> Callable[[NodeModel], None]:
    """Node Feature Discovery has counted this for longer than it may disagree."""

    def change(model: NodeModel) -> None:
        model.bus_sources = BusSources(nfd_counts=counts)
        model.report(*(card(index, f"GPU-{index}") for index in range(reported)))
        model.settle()
        model.time += SETTINGS.bus_disagreement_timeout

    return change


def off_bus(model: NodeModel) -> None:
    """The third card was pulled, and the driver has gone on showing it for longer than it may disagree."""
    model.report(*(card(index, f"GPU-{index}") for index in range(3)), places=on_bus(0, 1))
    model.settle()
    model.time += SETTINGS.bus_disagreement_timeout


def fresh(places: tuple[PCI, ...]) -> Callable[[NodeModel], None]:
    """A new node: the bus shows three cards, the driver one."""

    def change(model: NodeModel) -> None:
        model.devices.clear()
        model.state = None
        model.bus_sources = BusSources(discovered=places)
        model.report(card(0, "GPU-0"), bus=3)

    return change


@pytest.mark.parametrize(
    ("change", "reason", "words", "cards"),
    [
        (two, Reason.INVENTORY_SYNCED, "All 2 cards are known.", {FIRST, SECOND}),
        (
            lambda model: two(model, bus=3),
            Reason.CARDS_MISSING,
            f"Missing: {THIRD} (NVIDIA H200). `lspci -nnk -s {THIRD}`",
            {FIRST, SECOND, THIRD},
        ),
        (
            lambda model: two(model, bus=3, places=on_bus(0, 1, 2)),
            Reason.CARDS_MISSING,
            f"Missing: {THIRD} (NVIDIA H200).",
            {FIRST, SECOND, THIRD},
        ),
        (
            lambda model: two(model, bus=3, places=on_bus(0, 1, 4)),
            Reason.CARDS_MISSING,
            f"Missing: {pci_address(4)} ({MODEL}).",
            {FIRST, SECOND, pci_address(4)},
        ),
        (
            lambda model: model.report(card(0, "GPU-0"), card(4, "GPU-4"), places=on_bus(0, 2)),
            Reason.CARDS_MISSING,
            f"Missing: {THIRD} (NVIDIA H200). Not on the bus, but shown by the driver: {pci_address(4)}.",
            {FIRST, THIRD, pci_address(4)},
        ),
        (
            off_bus,
            Reason.BUS_DISAGREES,
            f"The driver shows cards that are not on the PCI bus: {THIRD}.",
            {FIRST, SECOND, THIRD},
        ),
        (
            fresh(on_bus(0, 1, 2)),
            Reason.CARDS_MISSING,
            f"Missing: {SECOND} ({MODEL}), {THIRD} ({MODEL}).",
            {FIRST, SECOND, THIRD},
        ),
        (
            fresh(()),
            Reason.CARDS_MISSING,
            "The PCI bus shows 3 cards, the node reports 1. `lspci -nnk -d 10de:`",
            {FIRST},
        ),
        (
            ignored,
            Reason.INVENTORY_SYNCED,
            f"All 3 cards are known. Out of service and not seen by the driver: {THIRD}.",
            {FIRST, SECOND, THIRD},
        ),
        (
            ignored_but_another_is_missing,
            Reason.CARDS_MISSING,
            f"Missing: {SECOND} (NVIDIA H200).",
            {FIRST, SECOND, THIRD},
        ),
        (counted({MODEL: 3}), Reason.INVENTORY_SYNCED, "All 3 cards are known.", {FIRST, SECOND, THIRD}),
        (
            counted({MODEL: 4}),
            Reason.BUS_DISAGREES,
            f"it counts 4 of {MODEL}, the agent 3. `lspci -d 10de:` on {NODE} says who is right.",
            {FIRST, SECOND, THIRD},
        ),
        (counted({MODEL: 3}, 2), Reason.BUS_DISAGREES, f"it counts 3 of {MODEL}, the agent 2", {FIRST, SECOND}),
        (counted({}), Reason.BUS_DISAGREES, f"it counts 0 of {MODEL}, the agent 3", {FIRST, SECOND, THIRD}),
        (
            counted({MODEL: 2, "10de:2330": 1}),
            Reason.BUS_DISAGREES,
            f"it counts 1 of 10de:2330, the agent 0; it counts 2 of {MODEL}, the agent 3",
            {FIRST, SECOND, THIRD},
        ),
    ],
    ids=[
        "pulled",
        "lost by the driver",
        "lost, with addresses",
        "new card without driver, old one pulled",
        "as many as on the bus, but others",
        "pulled, but not for the driver",
        "new node, two without driver, by discovery",
        "new node, two without driver, no addresses",
        "lost, but out of service",
        "one out of service, another lost",
        "NFD agrees",
        "NFD counts more",
        "NFD counts more after a pull",
        "NFD counts none",
        "NFD counts other models",
    ],
)
def test_completeness_when_bus_and_driver_disagree(
    model: NodeModel, change: Callable[[NodeModel], None], reason: Reason, words: str, cards: set[str]
) -> None:
    change(model)
    model.settle()
    held = complete(model)
    assert (held.reason, held.status) == (reason, str(reason is Reason.INVENTORY_SYNCED))
    assert words in held.message
    assert model.addresses == cards


def observed(model: NodeModel) -> bool:
    """Whether bootstrap and pools may act on the status."""
    assert model.state is not None
    return is_report_observed(model.state.status, model.feature, model.devices.get)


@pytest.mark.parametrize("places", [None, on_bus(0, 1, 2)], ids=["no addresses", "with addresses"])
def test_a_status_that_leaves_a_card_out_is_out_of_date_once_the_card_is_no_longer_ignored(
    model: NodeModel, places: tuple[PCI, ...] | None
) -> None:
    """It needs no new report: until inventory has looked, nothing is issued by a status that excuses the card."""
    model.ignore(THIRD)
    two(model, bus=3, places=places)
    assert not observed(model)
    model.settle()
    assert (complete(model).reason, observed(model)) == (Reason.INVENTORY_SYNCED, True)
    model.ignore(THIRD, "false")
    assert not observed(model)
    model.settle()
    assert (complete(model).reason, observed(model)) == (Reason.CARDS_MISSING, True)
    model.ignore(THIRD)
    model.settle()
    assert (complete(model).reason, observed(model)) == (Reason.INVENTORY_SYNCED, True)


def test_an_ignored_card_that_is_pulled_is_forgotten_like_any_other(model: NodeModel) -> None:
    ignored(model)
    model.settle()
    two(model)
    model.settle()
    assert model.addresses == {FIRST, SECOND}


def hidden(model: NodeModel, *cards: Hardware, driver: bool) -> None:
    """The agent cannot read the bus: it knows what its driver shows, and nothing without one."""
    facts = FACTS if driver else msgspec.structs.replace(FACTS, driver=None)
    model.report(*cards, bus=len(cards), facts=facts)


def test_cards_are_not_forgotten_because_the_agent_can_no_longer_read_the_bus(model: NodeModel) -> None:
    hidden(model, driver=False)
    model.settle()
    model.time += 2 * SETTINGS.node_grace_period
    model.settle()
    assert complete(model).reason == Reason.BUS_HIDDEN
    assert "/sys" in complete(model).message
    assert model.addresses == {FIRST, SECOND, THIRD}


def test_discovery_replaces_the_bus_that_an_agent_cannot_read(model: NodeModel) -> None:
    model.bus_sources = BusSources(discovered=on_bus(0, 1, 2))
    hidden(model, card(0, "GPU-0"), card(1, "GPU-1"), driver=True)
    model.settle()
    held = complete(model)
    assert held.reason == Reason.CARDS_MISSING
    assert f"kubectl label gpudevice {model.at(THIRD).name} " in held.message
    model.ignore(THIRD)
    model.settle()
    assert complete(model).reason == Reason.INVENTORY_SYNCED


def test_discovery_is_not_used_when_the_driver_shows_cards_at_other_addresses(model: NodeModel) -> None:
    """It may be older than the agent's report."""
    model.bus_sources = BusSources(discovered=on_bus(4))
    hidden(model, *(card(index, f"GPU-{index}") for index in range(3)), driver=True)
    model.settle()
    assert complete(model).reason == Reason.INVENTORY_SYNCED


def test_node_feature_discovery_may_be_late(model: NodeModel) -> None:
    """A card is pulled, the agent reports it at once, NFD a minute later: the condition does not change."""
    model.bus_sources = BusSources(nfd_counts={MODEL: 3})
    model.settle()
    two(model)
    left = model.settle().again_in
    assert left == SETTINGS.bus_disagreement_timeout
    model.time += timedelta(minutes=1)
    assert model.settle().again_in == SETTINGS.bus_disagreement_timeout - timedelta(minutes=1)
    model.bus_sources = BusSources(nfd_counts={MODEL: 2})
    assert model.settle().again_in is None
    assert complete(model).reason == Reason.INVENTORY_SYNCED
    assert Reason.BUS_DISAGREES not in model.events


def test_the_driver_may_be_late(model: NodeModel) -> None:
    """A card is pulled while the agent reads the driver: the condition does not change if the next report agrees."""
    model.report(*(card(index, f"GPU-{index}") for index in range(3)), places=on_bus(0, 1))
    assert model.settle().again_in == SETTINGS.bus_disagreement_timeout
    two(model)
    assert model.settle().again_in is None
    assert Reason.BUS_DISAGREES not in model.events


@pytest.mark.parametrize("restarts", [0, 3])
def test_a_new_node_is_not_complete_while_node_feature_discovery_disagrees(restarts: int) -> None:
    """Only a node that was complete stays so for a while. The cards of a new one are not issued meanwhile, however
    often the controller restarts and forgets since when NFD has disagreed."""
    model = NodeModel()
    model.bus_sources = BusSources(nfd_counts={MODEL: 4})
    model.report(*(card(index, f"GPU-{index}") for index in range(3)))
    for _ in range(restarts + 1):
        model.disagreement_since = None
        model.settle()
        assert complete(model).reason == Reason.BUS_DISAGREES
    model.bus_sources = BusSources(nfd_counts={MODEL: 3})
    model.settle()
    assert complete(model).reason == Reason.INVENTORY_SYNCED


def test_a_disagreement_in_the_status_stays_across_a_restart(model: NodeModel) -> None:
    counted({MODEL: 4})(model)
    model.settle()
    model.disagreement_since = None
    assert model.plan().settled
    model.bus_sources = BusSources(nfd_counts={MODEL: 3})
    model.settle()
    assert model.events == [Reason.BUS_DISAGREES, Reason.INVENTORY_SYNCED]


@pytest.mark.parametrize("again", [4, 3])
def test_a_disagreement_stays_while_node_feature_discovery_publishes_nothing(model: NodeModel, again: int) -> None:
    """Its workers are updated, or a new controller has not read it yet: nothing is issued meanwhile."""
    counted({MODEL: 4})(model)
    model.settle()
    model.bus_sources = BusSources(nfd_awaited=True)
    plan = model.settle()
    assert (plan.again_in, complete(model).reason) == (SETTINGS.bus_disagreement_timeout, Reason.BUS_DISAGREES)
    model.time += timedelta(minutes=1)
    assert model.settle().again_in == SETTINGS.bus_disagreement_timeout - timedelta(minutes=1)
    assert model.events == [Reason.BUS_DISAGREES]
    model.bus_sources = BusSources(nfd_counts={MODEL: again})
    assert model.settle().again_in is None
    expected = Reason.BUS_DISAGREES if again > 3 else Reason.INVENTORY_SYNCED
    assert complete(model).reason == expected


@pytest.mark.parametrize(
    "bus_sources", [BusSources(), BusSources(nfd_awaited=True)], ids=["uninstalled", "publishes nothing for long"]
)
def test_a_disagreement_ends_when_node_feature_discovery_is_gone(model: NodeModel, bus_sources: BusSources) -> None:
    counted({MODEL: 4})(model)
    model.settle()
    model.bus_sources = bus_sources
    if model.settle().again_in is not None:
        model.time += SETTINGS.bus_disagreement_timeout
        model.settle()
    assert complete(model).reason == Reason.INVENTORY_SYNCED


def test_missing_cards_are_written_while_node_feature_discovery_publishes_nothing(model: NodeModel) -> None:
    counted({MODEL: 4})(model)
    model.settle()
    model.bus_sources = BusSources(nfd_awaited=True)
    two(model, places=on_bus(0, 1, 2))
    model.settle()
    assert complete(model).reason == Reason.CARDS_MISSING


@pytest.mark.parametrize(
    ("totals", "count"),
    [(("16", "", "", "16"), 2), (("", "", ""), 3), (("16", "16"), 2)],
    ids=["with virtual functions", "virtual functions of a virtual machine", "without any"],
)
def test_virtual_functions_are_not_counted_beside_their_card(totals: tuple[str, ...], count: int) -> None:
    devices = [Device("10de", "2335", "0302", total) for total in totals]
    features = Features(Instances(Devices(tuple(map(Element, devices)))))
    assert DiscoveredNode(spec=Spec(features)).counts == {MODEL: count}


def test_only_cards_of_a_worker_of_node_feature_discovery_are_counted() -> None:
    """It lists every device of the bus; other programs publish about the same node under other names."""

    def device(**ids: str) -> dict[str, object]:
        return {"attributes": {**ids, "subsystem_vendor": "10de"}}

    listed = [
        device(vendor="10de", device="2335", **{"class": "0302"}),
        device(vendor="10de", device="2335", **{"class": "0302"}),
        device(vendor="10de", device="22a3", **{"class": "0680"}),
        device(vendor="1a03", device="2000", **{"class": "0300"}),
    ]
    metadata = {"name": "worker-3", "labels": {"nfd.node.kubernetes.io/node-name": "worker-3"}}
    feature: dict[str, object] = {
        "metadata": metadata,
        "spec": {"features": {"instances": {"pci.device": {"elements": listed}, "usb.device": {"elements": []}}}},
    }
    found = msgspec.convert(feature, DiscoveredNode)
    assert (found.node, found.counts) == ("worker-3", {MODEL: 2})
    assert len(found.spec.features.instances.pci.elements) == 2  # type: ignore[union-attr]
    other = msgspec.convert({**feature, "metadata": {**metadata, "name": "extra"}}, DiscoveredNode)
    assert other.node is None
    empty = msgspec.convert({"metadata": {"name": "worker-3"}, "spec": {}}, DiscoveredNode)
    assert empty.counts is None


@pytest.mark.parametrize(
    ("namespace", "trusted"),
    [
        ("node-feature-discovery", True),
        ("gpu-operator", True),
        ("kube-system", True),
        ("d8-nvidia-gpu", True),
        ("openshift-nfd", True),
        ("hardware", True),
        ("team-a", False),
        ("default", False),
        ("d8", False),
        ("node-feature-discovery-team-a", False),
        ("", False),
    ],
)
def test_only_namespaces_that_no_user_has_may_contradict_an_agent(namespace: str, trusted: bool) -> None:
    assert is_trusted(namespace, {"hardware"}) is trusted


def complete(model: NodeModel) -> Condition:
    assert model.state is not None
    held = find(model.state.status.conditions, NodeCondition.INVENTORY_COMPLETE)
    assert held is not None
    return held
