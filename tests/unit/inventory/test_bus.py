"""The PCI bus against the driver: what InventoryComplete says of each disagreement, and what happens to the cards."""

from collections.abc import Callable, Mapping
from datetime import timedelta

import msgspec
import pytest

from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.gpudevice import PCI, Hardware
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.inventory.bus import Witnesses
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
from unit.inventory.world import FACTS, NODE, SETTINGS, World, card

FIRST, SECOND, THIRD = (pci_address(index) for index in range(3))
MODEL = "10de:2335"


def on_bus(*indices: int) -> tuple[PCI, ...]:
    return tuple(card(index).pci for index in indices)


@pytest.fixture
def world() -> World:
    """A node with three cards, everything settled."""
    made = World()
    made.report(*(card(index, f"GPU-{index}") for index in range(3)))
    made.settle()
    made.told.clear()
    return made


def two(world: World, **said: object) -> None:
    """The driver knows the first two cards only."""
    world.report(card(0, "GPU-0"), card(1, "GPU-1"), **said)  # type: ignore[arg-type]


def ignored(world: World) -> None:
    world.ignore(THIRD)
    two(world, bus=3)


def ignored_but_another_is_missing(world: World) -> None:
    world.ignore(THIRD)
    world.report(card(0, "GPU-0"), bus=3)


def counted(counts: Mapping[str, int], reported: int = 3) -> Callable[[World], None]:
    """Node Feature Discovery counts this, and has for long."""

    def change(world: World) -> None:
        world.witnesses = Witnesses(counts=counts)
        world.report(*(card(index, f"GPU-{index}") for index in range(reported)))
        world.settle()
        world.time += SETTINGS.bus_patience

    return change


def stray(world: World) -> None:
    """The third card was pulled; the driver goes on showing it, and has for long."""
    world.report(*(card(index, f"GPU-{index}") for index in range(3)), places=on_bus(0, 1))
    world.settle()
    world.time += SETTINGS.bus_patience


def fresh(places: tuple[PCI, ...]) -> Callable[[World], None]:
    """A node that nobody has seen before: the bus shows three, the driver one."""

    def change(world: World) -> None:
        world.devices.clear()
        world.state = None
        world.witnesses = Witnesses(places=places)
        world.report(card(0, "GPU-0"), bus=3)

    return change


@pytest.mark.parametrize(
    ("change", "reason", "words", "cards"),
    [
        (two, Reason.INVENTORY_SYNCED, "All 2 cards are known.", {FIRST, SECOND}),
        (
            lambda world: two(world, bus=3),
            Reason.CARDS_MISSING,
            f"Missing: {THIRD} (NVIDIA H200). `lspci -nnk -s {THIRD}`",
            {FIRST, SECOND, THIRD},
        ),
        (
            lambda world: two(world, bus=3, places=on_bus(0, 1, 2)),
            Reason.CARDS_MISSING,
            f"Missing: {THIRD} (NVIDIA H200).",
            {FIRST, SECOND, THIRD},
        ),
        (
            lambda world: two(world, bus=3, places=on_bus(0, 1, 4)),
            Reason.CARDS_MISSING,
            f"Missing: {pci_address(4)} ({MODEL}).",
            {FIRST, SECOND, pci_address(4)},
        ),
        (
            lambda world: world.report(card(0, "GPU-0"), card(4, "GPU-4"), places=on_bus(0, 2)),
            Reason.CARDS_MISSING,
            f"Missing: {THIRD} (NVIDIA H200). Not on the bus, but shown by the driver: {pci_address(4)}.",
            {FIRST, THIRD, pci_address(4)},
        ),
        (
            stray,
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
        "new node, two without driver, nobody says where",
        "lost, but out of service",
        "one out of service, another lost",
        "NFD agrees",
        "NFD counts more",
        "NFD counts more after a pull",
        "NFD counts none",
        "NFD counts other models",
    ],
)
def test_what_is_said_when_bus_and_driver_disagree(
    world: World, change: Callable[[World], None], reason: Reason, words: str, cards: set[str]
) -> None:
    change(world)
    world.settle()
    held = complete(world)
    assert (held.reason, held.status) == (reason, str(reason is Reason.INVENTORY_SYNCED))
    assert words in held.message
    assert world.addresses == cards


def test_an_ignored_card_that_is_pulled_is_forgotten_like_any_other(world: World) -> None:
    ignored(world)
    world.settle()
    two(world)
    world.settle()
    assert world.addresses == {FIRST, SECOND}


def hidden(world: World, *cards: Hardware, driver: bool) -> None:
    """The agent cannot read the bus: it knows what its driver shows, and nothing without one."""
    facts = FACTS if driver else msgspec.structs.replace(FACTS, driver=None)
    world.report(*cards, bus=len(cards), facts=facts)


def test_cards_are_not_forgotten_because_the_agent_can_no_longer_read_the_bus(world: World) -> None:
    hidden(world, driver=False)
    world.settle()
    world.time += 2 * SETTINGS.node_grace_period
    world.settle()
    assert complete(world).reason == Reason.BUS_HIDDEN
    assert "/sys" in complete(world).message
    assert world.addresses == {FIRST, SECOND, THIRD}


def test_an_agent_that_cannot_read_the_bus_is_told_by_discovery_what_is_there(world: World) -> None:
    world.witnesses = Witnesses(places=on_bus(0, 1, 2))
    hidden(world, card(0, "GPU-0"), card(1, "GPU-1"), driver=True)
    world.settle()
    held = complete(world)
    assert held.reason == Reason.CARDS_MISSING
    assert f"kubectl label gpudevice {world.at(THIRD).name} " in held.message
    world.ignore(THIRD)
    world.settle()
    assert complete(world).reason == Reason.INVENTORY_SYNCED


def test_discovery_is_not_believed_about_cards_that_the_driver_shows_elsewhere(world: World) -> None:
    """It may be older than the agent's report."""
    world.witnesses = Witnesses(places=on_bus(4))
    hidden(world, *(card(index, f"GPU-{index}") for index in range(3)), driver=True)
    world.settle()
    assert complete(world).reason == Reason.INVENTORY_SYNCED


def test_node_feature_discovery_may_be_late(world: World) -> None:
    """A card is pulled, the agent knows at once, NFD a minute later: nothing is told."""
    world.witnesses = Witnesses(counts={MODEL: 3})
    world.settle()
    two(world)
    left = world.settle().again_in
    assert left == SETTINGS.bus_patience
    world.time += timedelta(minutes=1)
    assert world.settle().again_in == SETTINGS.bus_patience - timedelta(minutes=1)
    world.witnesses = Witnesses(counts={MODEL: 2})
    assert world.settle().again_in is None
    assert complete(world).reason == Reason.INVENTORY_SYNCED
    assert Reason.BUS_DISAGREES not in world.told


def test_the_driver_may_be_late(world: World) -> None:
    """A card is pulled while the driver is asked: nothing is told if the next look shows both the same."""
    world.report(*(card(index, f"GPU-{index}") for index in range(3)), places=on_bus(0, 1))
    assert world.settle().again_in == SETTINGS.bus_patience
    two(world)
    assert world.settle().again_in is None
    assert Reason.BUS_DISAGREES not in world.told


@pytest.mark.parametrize("restarts", [0, 3])
def test_a_new_node_is_not_complete_while_node_feature_discovery_disagrees(restarts: int) -> None:
    """Patience is for a node that has been proven; one that never was must not have its cards issued meanwhile, however
    often the controller forgets since when it has doubted."""
    world = World()
    world.witnesses = Witnesses(counts={MODEL: 4})
    world.report(*(card(index, f"GPU-{index}") for index in range(3)))
    for _ in range(restarts + 1):
        world.doubted_since = None
        world.settle()
        assert complete(world).reason == Reason.BUS_DISAGREES
    world.witnesses = Witnesses(counts={MODEL: 3})
    world.settle()
    assert complete(world).reason == Reason.INVENTORY_SYNCED


def test_a_disagreement_that_was_told_stays_told_across_a_restart(world: World) -> None:
    counted({MODEL: 4})(world)
    world.settle()
    world.doubted_since = None
    assert world.plan().settled
    world.witnesses = Witnesses(counts={MODEL: 3})
    world.settle()
    assert world.told == [Reason.BUS_DISAGREES, Reason.INVENTORY_SYNCED]


@pytest.mark.parametrize("again", [4, 3])
def test_a_disagreement_is_not_over_because_node_feature_discovery_is_silent(world: World, again: int) -> None:
    """Its workers are updated, or a new controller has not heard it yet: nothing is issued meanwhile, nothing told."""
    counted({MODEL: 4})(world)
    world.settle()
    world.witnesses = Witnesses(awaited=True)
    plan = world.settle()
    assert (plan.again_in, complete(world).reason) == (SETTINGS.bus_patience, Reason.BUS_DISAGREES)
    world.time += timedelta(minutes=1)
    assert world.settle().again_in == SETTINGS.bus_patience - timedelta(minutes=1)
    assert world.told == [Reason.BUS_DISAGREES]
    world.witnesses = Witnesses(counts={MODEL: again})
    assert world.settle().again_in is None
    expected = Reason.BUS_DISAGREES if again > 3 else Reason.INVENTORY_SYNCED
    assert complete(world).reason == expected


@pytest.mark.parametrize("witnesses", [Witnesses(), Witnesses(awaited=True)], ids=["uninstalled", "silent for long"])
def test_a_disagreement_is_over_when_nobody_upholds_it(world: World, witnesses: Witnesses) -> None:
    counted({MODEL: 4})(world)
    world.settle()
    world.witnesses = witnesses
    if world.settle().again_in is not None:
        world.time += SETTINGS.bus_patience
        world.settle()
    assert complete(world).reason == Reason.INVENTORY_SYNCED


def test_cards_that_are_missing_are_told_though_node_feature_discovery_is_silent(world: World) -> None:
    counted({MODEL: 4})(world)
    world.settle()
    world.witnesses = Witnesses(awaited=True)
    two(world, places=on_bus(0, 1, 2))
    world.settle()
    assert complete(world).reason == Reason.CARDS_MISSING


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
    """It lists every device of the bus; others publish about the same node under other names."""

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
    silent = msgspec.convert({"metadata": {"name": "worker-3"}, "spec": {}}, DiscoveredNode)
    assert silent.counts is None


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


def complete(world: World) -> Condition:
    assert world.state is not None
    held = find(world.state.status.conditions, NodeCondition.INVENTORY_COMPLETE)
    assert held is not None
    return held
