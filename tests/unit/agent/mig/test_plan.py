"""The difference as steps."""

import pytest
from msgspec.structs import replace

from gpu_control_plane.agent.backends.interface import Instance
from gpu_control_plane.agent.mig.plan import CardUse, Create, Destroy, PartitionPlan, SwitchMode, plan
from gpu_control_plane.api.allocation import MIG
from gpu_control_plane.api.gpudevice import MIGCapability
from gpu_control_plane.rules.mig_layout import Geometry, Misconfigured
from unit.agent.mig.cards import H200, equal, layout, slots

OFF = replace(H200, enabled=False)
NOTHING: Geometry = frozenset()


def planned(
    target: MIG | None,
    existing: Geometry = NOTHING,
    held: Geometry = NOTHING,
    *,
    capability: MIGCapability | None = H200,
    holder: str | None = None,
) -> PartitionPlan:
    instances = tuple(
        Instance(
            profile=slot.profile,
            start=slot.start,
            size=slot.size,
            uuid=f"MIG-{slot}",
            gpu_instance=slot.start,
            compute_instance=0,
        )
        for slot in sorted(existing)
    )
    holders = dict.fromkeys(held, "ml/train-0")
    return plan(CardUse(capability=capability, instances=instances, holders=holders, holder=holder), target)


def told(made: PartitionPlan) -> list[str]:
    """The steps in short."""
    words = []
    for step in made.steps:
        match step:
            case SwitchMode(enabled):
                words.append("on" if enabled else "off")
            case Destroy(instance):
                words.append(f"-{instance.profile}@{instance.start}")
            case Create(slot):
                words.append(f"+{slot}")
    return words


def test_a_card_as_ordered_needs_no_step() -> None:
    assert planned(layout(g3=2), slots("g3@0", "g3@4")).steps == ()


def test_only_the_difference_is_made() -> None:
    assert told(planned(layout(g3=1, g1=1), slots("g1@2", "g3@4", "g2@0"))) == ["-2g.35gb@0"]


def test_mode_first_then_destroyed_in_reverse_then_created_largest_first() -> None:
    assert told(planned(layout(g4=1, g2=1, g1=1), capability=OFF)) == [
        "on",
        "+4g.71gb@0",
        "+2g.35gb@4",
        "+1g.18gb@6",
    ]
    assert told(planned(layout(g4=1, g3=1), slots("g1@0", "g1@5", "g1@3"))) == [
        "-1g.18gb@5",
        "-1g.18gb@3",
        "-1g.18gb@0",
        "+4g.71gb@0",
        "+3g.71gb@4",
    ]


def test_the_mode_of_a_card_in_use_is_left_alone() -> None:
    made = planned(equal("1g.18gb"), capability=OFF, holder="ml/train-0")

    assert made.steps == ()
    assert made.waiting == "MIG mode stays off while ml/train-0 holds the card."
    assert len(made.wanted) == 7


def test_waiting_names_what_is_missing_and_who_is_in_the_way() -> None:
    made = planned(layout(g4=1, g3=1), slots("g1@5"), slots("g1@5"))

    assert told(made) == ["+4g.71gb@0"]
    assert made.waiting == "3g.71gb@4 cannot be created while 1g.18gb@5 is in use by ml/train-0."


def test_something_in_use_beside_the_target_is_reported() -> None:
    made = planned(layout(g3=1), slots("g3@4", "g1@0"), slots("g1@0"))

    assert made.steps == ()
    assert made.waiting == "The card is partitioned as ordered, but 1g.18gb@0 is in use by ml/train-0 beside that."


def test_a_card_that_leaves_mig_is_emptied_and_then_switched_off() -> None:
    assert told(planned(None, slots("g1@0", "g3@4"))) == ["-3g.71gb@4", "-1g.18gb@0", "off"]
    assert planned(None, capability=OFF).steps == ()
    assert planned(None, capability=None).steps == ()


def test_mig_stays_on_while_anybody_uses_an_instance_or_the_card() -> None:
    with_instance = planned(None, slots("g1@0", "g3@4"), slots("g3@4"))
    assert told(with_instance) == ["-1g.18gb@0"]
    assert with_instance.waiting == "MIG mode stays on while 3g.71gb@4 is in use by ml/train-0."

    with_card = planned(None, slots("g1@0"), holder="process 7")
    assert told(with_card) == ["-1g.18gb@0"]
    assert with_card.waiting == "MIG mode stays on while process 7 holds the card."


@pytest.mark.parametrize("capability", [None, MIGCapability(capable=False, enabled=False)])
def test_a_card_without_mig_cannot_be_cut(capability: MIGCapability | None) -> None:
    with pytest.raises(Misconfigured, match="cannot be partitioned"):
        planned(equal("1g.18gb"), capability=capability)
