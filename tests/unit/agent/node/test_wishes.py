"""Orders become units as far as the hardware goes."""

import msgspec
import pytest

from gpu_control_plane.agent.mig.layout import Slot
from gpu_control_plane.agent.mig.units import unit_id
from gpu_control_plane.agent.node.picture import look
from gpu_control_plane.agent.node.wishes import cuts, known, obstacles, wanted
from gpu_control_plane.agent.units import Unit, replica_id
from gpu_control_plane.api.allocation import Allocation, Mode
from gpu_control_plane.api.gpunodestate import ProblemReason
from unit.agent.node.scenes import (
    NODE,
    RESOURCE,
    backend,
    cut,
    device,
    exclusive,
    first,
    picture,
    turns,
    uuid_of,
)

PICTURE = picture()
SEEN = first(PICTURE)
UUID = uuid_of(SEEN)
CARDS = {SEEN.id: SEEN}


def test_a_card_that_the_cluster_takes_for_another_is_not_offered() -> None:
    assert list(known(PICTURE, [device(SEEN)])) == [SEEN.id]
    assert known(PICTURE, [device(SEEN, uuid="GPU-of-another-card")]) == {}
    assert known(PICTURE, []) == {}


def test_a_whole_card_is_one_unit() -> None:
    assert wanted([exclusive(SEEN.id)], CARDS, {}, None) == {Unit(RESOURCE, UUID, SEEN.id)}


def test_turns_are_units_of_their_own() -> None:
    units = wanted([turns(SEEN.id, 3)], CARDS, {}, None)
    assert {unit.id for unit in units} == {replica_id(UUID, number) for number in range(3)}
    assert {unit.mode for unit in units} == {Mode.TIME_SLICE}


def test_an_order_for_a_card_that_is_not_there_is_not_carried_out() -> None:
    assert wanted([exclusive("node-a-0000-ff-00-0")], CARDS, {}, None) == set()


def test_cards_in_no_pool_are_offered_only_if_that_is_switched_on() -> None:
    assert wanted([], CARDS, {}, None) == set()
    assert wanted([], CARDS, {}, "nvidia.com/gpu") == {Unit("nvidia.com/gpu", UUID, SEEN.id)}
    assert wanted([exclusive(SEEN.id)], CARDS, {}, "nvidia.com/gpu") == {Unit(RESOURCE, UUID, SEEN.id)}


def test_only_instances_that_exist_and_are_meant_are_offered() -> None:
    below = backend()
    below.open()
    below.set_mig_mode(SEEN.address, enabled=True)
    below.create_instance(SEEN.address, "3g.71gb", 0)
    below.create_instance(SEEN.address, "1g.18gb", 4)
    seen = look(NODE, below).seen
    geometry = {SEEN.id: frozenset({Slot(0, 4, "3g.71gb"), Slot(4, 4, "3g.71gb")})}
    order = cut(SEEN.id, **{"3g_71gb": 2})
    (unit,) = wanted([order], seen, geometry, None)
    assert unit == Unit(f"{RESOURCE}.3g.71gb", unit_id(UUID, "3g.71gb", 0), SEEN.id, Mode.MIG, (0, 4))
    assert wanted([exclusive(SEEN.id)], {SEEN.id: seen[SEEN.id]}, {}, None) == set(), "nobody can have it whole"


def test_cards_are_cut_for_their_orders_and_made_whole_for_others() -> None:
    order = cut(SEEN.id, **{"1g_18gb": 7})
    assert cuts([order], CARDS) == {SEEN.id: order.allocation.mig}
    assert cuts([exclusive(SEEN.id)], CARDS) == {}
    below = backend()
    below.open()
    below.set_mig_mode(SEEN.address, enabled=True)
    assert cuts([exclusive(SEEN.id)], look(NODE, below).seen) == {SEEN.id: None}
    assert cuts([], look(NODE, below).seen) == {}, "a card without orders is nobody's to change"


def test_orders_that_cannot_be_carried_out_are_told_with_the_reason() -> None:
    stranger = msgspec.structs.replace(exclusive(SEEN.id), allocation=Allocation(mode=Mode("MPS")))
    unnamed = msgspec.structs.replace(cut(SEEN.id, **{"1g_18gb": 2}), resources=exclusive(SEEN.id).resources)
    told = {
        problem.message.split(":")[0].split(",")[0]: problem.reason
        for order in (exclusive("node-a-0000-ff-00-0"), stranger, unnamed, exclusive(SEEN.id))
        for problem in obstacles([order], CARDS)
    }
    assert told == {
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
def test_a_name_that_the_kubelet_refuses_is_not_offered_but_told(name: str, taken: bool) -> None:
    order = exclusive(SEEN.id, name)
    assert bool(wanted([order], CARDS, {}, None)) is taken
    assert [problem.reason for problem in obstacles([order], CARDS)] == ([] if taken else [ProblemReason.MISCONFIGURED])


def test_a_cut_card_whose_mode_is_not_understood_is_left_as_it_is() -> None:
    below = backend()
    below.open()
    below.set_mig_mode(SEEN.address, enabled=True)
    stranger = msgspec.structs.replace(exclusive(SEEN.id), allocation=Allocation(mode=Mode("MPS")))
    assert cuts([stranger], look(NODE, below).seen) == {}
