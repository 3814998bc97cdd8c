"""Orders become units as far as the hardware goes."""

import msgspec
import pytest

from gpu_control_plane.agent.hardware_snapshot import probe_hardware
from gpu_control_plane.agent.mig.units import unit_id
from gpu_control_plane.agent.step.desired_units import desired_units, mig_targets, order_problems, usable_cards
from gpu_control_plane.agent.units import Unit, replica_id
from gpu_control_plane.api.allocation import Allocation, Mode
from gpu_control_plane.api.gpunodestate import ProblemReason
from gpu_control_plane.rules.mig_layout import Slot
from unit.agent.step.builders import (
    NODE,
    RESOURCE,
    backend,
    device,
    exclusive,
    first,
    hardware,
    partitioned,
    time_sliced,
    uuid_of,
)

HARDWARE = hardware()
CARD = first(HARDWARE)
UUID = uuid_of(CARD)
CARDS = {CARD.id: CARD}


def test_a_card_that_the_api_server_knows_as_another_is_not_usable() -> None:
    assert list(usable_cards(HARDWARE, [device(CARD)])) == [CARD.id]
    assert usable_cards(HARDWARE, [device(CARD, uuid="GPU-of-another-card")]) == {}
    assert usable_cards(HARDWARE, []) == {}


def test_a_whole_card_is_one_unit() -> None:
    assert desired_units([exclusive(CARD.id)], CARDS, {}, None) == {Unit(RESOURCE, UUID, CARD.id)}


def test_each_replica_is_a_unit() -> None:
    units = desired_units([time_sliced(CARD.id, 3)], CARDS, {}, None)
    assert {unit.id for unit in units} == {replica_id(UUID, number) for number in range(3)}
    assert {unit.mode for unit in units} == {Mode.TIME_SLICE}


def test_an_order_for_a_card_that_is_not_there_is_not_carried_out() -> None:
    assert desired_units([exclusive("node-a-0000-ff-00-0")], CARDS, {}, None) == set()


def test_cards_in_no_pool_are_advertised_only_if_that_is_switched_on() -> None:
    assert desired_units([], CARDS, {}, None) == set()
    assert desired_units([], CARDS, {}, "nvidia.com/gpu") == {Unit("nvidia.com/gpu", UUID, CARD.id)}
    assert desired_units([exclusive(CARD.id)], CARDS, {}, "nvidia.com/gpu") == {Unit(RESOURCE, UUID, CARD.id)}


def test_only_instances_that_exist_and_are_ordered_are_advertised() -> None:
    driver = backend()
    driver.open()
    driver.set_mig_mode(CARD.address, enabled=True)
    driver.create_instance(CARD.address, "3g.71gb", 0)
    driver.create_instance(CARD.address, "1g.18gb", 4)
    cards = probe_hardware(NODE, driver).observed
    geometry = {CARD.id: frozenset({Slot(0, 4, "3g.71gb"), Slot(4, 4, "3g.71gb")})}
    order = partitioned(CARD.id, **{"3g_71gb": 2})
    (unit,) = desired_units([order], cards, geometry, None)
    assert unit == Unit(f"{RESOURCE}.3g.71gb", unit_id(UUID, "3g.71gb", 0), CARD.id, Mode.MIG, (0, 4))
    assert desired_units([exclusive(CARD.id)], {CARD.id: cards[CARD.id]}, {}, None) == set(), "it cannot be had whole"


def test_cards_are_partitioned_for_mig_orders_and_made_whole_for_others() -> None:
    order = partitioned(CARD.id, **{"1g_18gb": 7})
    assert mig_targets([order], CARDS) == {CARD.id: order.allocation.mig}
    assert mig_targets([exclusive(CARD.id)], CARDS) == {}
    driver = backend()
    driver.open()
    driver.set_mig_mode(CARD.address, enabled=True)
    assert mig_targets([exclusive(CARD.id)], probe_hardware(NODE, driver).observed) == {CARD.id: None}
    assert mig_targets([], probe_hardware(NODE, driver).observed) == {}, "a card without orders stays as it is"


def test_orders_that_cannot_be_carried_out_are_reported_with_the_reason() -> None:
    unknown = msgspec.structs.replace(exclusive(CARD.id), allocation=Allocation(mode=Mode("MPS")))
    unnamed = msgspec.structs.replace(partitioned(CARD.id, **{"1g_18gb": 2}), resources=exclusive(CARD.id).resources)
    reported = {
        problem.message.split(":")[0].split(",")[0]: problem.reason
        for order in (exclusive("node-a-0000-ff-00-0"), unknown, unnamed, exclusive(CARD.id))
        for problem in order_problems([order], CARDS)
    }
    assert reported == {
        "The node has no such card": ProblemReason.WAITING,
        "This agent does not know the mode MPS": ProblemReason.MISCONFIGURED,
        "The order names no resource for 1g.18gb.": ProblemReason.MISCONFIGURED,
    }


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("gpu.deckhouse.io/training", True),
        ("nvidia.com/mig-1g.18gb.me", True),
        ("a/B_c.1", True),
        (f"x.io/{'y' * 63}", True),
        (f"x.io/{'y' * 64}", False),
        (f"{'x' * 244}/y", True),
        (f"{'x' * 245}/y", False),
        ("cpu", False),
        ("a/b/c", False),
        ("/gpu", False),
        ("Nvidia.com/gpu", False),
        ("x.io/-gpu", False),
        ("kubernetes.io/gpu", False),
        ("my.kubernetes.io/gpu", False),
        ("requests.x.io/gpu", False),
        ("x.io/gpu\n", False),
    ],
)
def test_a_name_that_the_kubelet_refuses_is_not_advertised_but_reported(name: str, taken: bool) -> None:
    order = exclusive(CARD.id, name)
    assert bool(desired_units([order], CARDS, {}, None)) is taken
    assert [problem.reason for problem in order_problems([order], CARDS)] == (
        [] if taken else [ProblemReason.MISCONFIGURED]
    )


def test_a_partitioned_card_with_an_unknown_mode_stays_as_it_is() -> None:
    driver = backend()
    driver.open()
    driver.set_mig_mode(CARD.address, enabled=True)
    unknown = msgspec.structs.replace(exclusive(CARD.id), allocation=Allocation(mode=Mode("MPS")))
    assert mig_targets([unknown], probe_hardware(NODE, driver).observed) == {}
