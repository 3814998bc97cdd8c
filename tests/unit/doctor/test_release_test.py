"""What `helm test` says: a line for each question, and what to do where something is wrong."""

import msgspec

from gpu_control_plane.doctor.examination import examine
from gpu_control_plane.doctor.release_test import QUESTIONS, TEST_CHECKS, answers_of
from gpu_control_plane.doctor.snapshot import Source
from unit.doctor.clusters import Spoil, changed, healthy, removed, snapshot


def lines(*spoils: Spoil, unread: Source | None = None) -> list[str]:
    cluster = healthy()
    for spoil in spoils:
        spoil(cluster)
    held = snapshot(cluster)
    if unread is not None:
        held = msgspec.structs.replace(held, unread={unread: "you may not read them"})
    return [line for answer in answers_of(examine(held, TEST_CHECKS)) for line in answer.lines()]


def no_cards(cluster: dict[str, list[dict[str, object]]]) -> None:
    for source in (Source.NODES, Source.STATES, Source.PODS):
        cluster[source].clear()


def test_a_healthy_release_gets_one_line_for_each_question() -> None:
    assert lines() == [f"✓ {question.statement}" for question in QUESTIONS]


def test_every_question_is_asked_by_checks_that_exist() -> None:
    assert {name for question in QUESTIONS for name in question.checks} == {check.id for check in TEST_CHECKS}


def test_what_is_wrong_says_what_to_do() -> None:
    said = lines(removed(Source.LEASES), removed(Source.POLICIES))
    assert "✓ A controller leads." not in said
    wrong = [line for line in said if line.startswith("✗")]
    assert any("No controller leads" in line for line in wrong)
    assert any("ValidatingAdmissionPolicy" in line for line in wrong)
    assert [said[said.index(line) + 1].split()[0] for line in wrong] == ["fix:"] * len(wrong)


def test_an_agent_that_only_starts_is_waited_for() -> None:
    starting = {"status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]}}
    assert "✗ pod agent-0: The agent is not ready yet." in lines(changed(Source.PODS, starting, 1))


def test_a_cluster_without_cards_is_no_fault() -> None:
    said = lines(no_cards)
    assert not [line for line in said if line.startswith("✗")]
    assert any(line.startswith("! 0 nodes: No Node has a label") for line in said)


def test_what_may_not_be_read_is_not_taken_to_be_fine() -> None:
    assert "✗ This could not be checked, since you may not read them." in lines(unread=Source.LEASES)
