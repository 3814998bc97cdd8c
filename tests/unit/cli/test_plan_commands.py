"""How the commands that act end and what they ask, without a cluster."""

from collections.abc import Sequence

import click
import pytest
from click.testing import CliRunner

from gpu_control_plane.actions.approvals import plan_approve, waiting_cards
from gpu_control_plane.actions.carry_out import Outcome
from gpu_control_plane.actions.plan import Plan, Refusal
from gpu_control_plane.cli.approve import _ask, numbers
from gpu_control_plane.cli.main import run
from gpu_control_plane.cli.plans import exit_code
from unit.actions.fleets import fleet_of
from unit.actions.test_plans import names, settled
from unit.pools.test_decide import pool

REFUSED = Refusal(name="x", sentence="no")
GONE = Refusal(name="y", sentence="there is no such card", absent=True)


def planned(*refusals: Refusal, cards: int = 1, unchanged: Sequence[str] = ()) -> Plan:
    fleet = fleet_of(settled(pool("a"), cards=max(cards, 1)))
    made = plan_approve(fleet, names(fleet)[:cards], "a")
    return Plan(command=made.command, edits=made.edits, refusals=refusals, unchanged=tuple(unchanged))


def outcomes(*done: bool, absent: bool = False) -> list[Outcome]:
    return [Outcome(name=str(number), done=each, absent=absent and not each) for number, each in enumerate(done)]


@pytest.mark.parametrize(
    ("plan", "became", "code"),
    [
        (planned(), None, 0),
        (planned(), outcomes(True), 0),
        (planned(REFUSED), outcomes(True), 5),
        (planned(REFUSED), None, 5),
        (planned(cards=2), outcomes(True, False), 5),
        (planned(), outcomes(False), 1),
        (planned(), outcomes(False, absent=True), 3),
        (planned(REFUSED, cards=0), None, 1),
        (planned(GONE, cards=0), None, 3),
        (planned(GONE, REFUSED, cards=0), None, 1),
        (planned(GONE, cards=0, unchanged=("z",)), None, 5),
        (planned(cards=0), None, 0),
    ],
)
def test_the_exit_code_tells_scripts_how_much_was_done(plan: Plan, became: list[Outcome] | None, code: int) -> None:
    assert exit_code(plan, became) == code


@pytest.mark.parametrize(
    ("answer", "chosen"), [("all", [1, 2, 3, 4]), ("3", [3]), ("1-2, 4", [1, 2, 4]), ("2 2-3", [2, 3])]
)
def test_cards_are_chosen_by_number(answer: str, chosen: list[int]) -> None:
    assert numbers(answer, 4) == chosen


@pytest.mark.parametrize("answer", ["5", "0", "x", "1-x", "-"])
def test_a_number_that_is_none_is_wrong_usage(answer: str) -> None:
    with pytest.raises(click.UsageError):
        numbers(answer, 4)


def test_without_a_card_a_person_is_asked_and_shown_what_it_leads_to() -> None:
    fleet = fleet_of(settled(pool("a"), pool("b"), cards=3))
    made: list[Plan] = []

    @click.command()
    def asks() -> None:
        made.append(_ask(fleet, waiting_cards(fleet), None, None))

    shown = CliRunner().invoke(asks, input="1-2\nb\nnew rack\ny\n")
    assert shown.exit_code == 0, shown.output
    assert [edit.name for edit in made[0].edits] == names(fleet)[:2]
    assert made[0].command.endswith("--pool b --reason 'new rack'")
    assert "b: units 0 → 2" in shown.output
    assert CliRunner().invoke(asks, input="all\na\n\nn\n").exit_code == 1, "who says no has done nothing"


@pytest.mark.parametrize(
    "arguments",
    [
        ["approve"],
        ["approve", "x", "--all-pending"],
        ["revoke"],
        ["retire"],
        ["hold"],
        ["reassign", "x"],
        ["clear-fault"],
        ["maintenance"],
        ["maintenance", "a", "--confirm-layout", "--revert"],
        ["retire", "x", "--wait", "--timeout", "soon"],
        ["preview"],
    ],
    ids=" ".join,
)
def test_a_command_line_that_makes_no_sense_is_refused_before_anything_is_read(arguments: list[str]) -> None:
    assert run([*arguments, "--kubeconfig", "/nonexistent"]) == 2
