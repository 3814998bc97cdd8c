"""GPU-hours are added up by group; a part of a card is a part of an hour, and what was not measured is never 0."""

from datetime import timedelta

import pytest

from gpu_control_plane.usage.held_now import PodStart, held_now
from gpu_control_plane.usage.hours import By, Hours, add_up, part_of_card, read_period
from gpu_control_plane.usage.queries import (
    Answers,
    Sample,
    hours_from,
    owners_from,
    questions,
    step_for,
)
from unit.views.builders import NOW, card

WEEK = timedelta(days=7)


def test_hours_of_a_group_are_added_up_and_the_most_held_comes_first() -> None:
    rows = add_up(
        [
            Hours(key="team-a", held=10, used=2, idle=5, measured=10),
            Hours(key="team-b", held=40, used=30, idle=0, measured=40),
            Hours(key="team-a", held=6, used=6, idle=0, measured=6),
        ]
    )
    assert [(row.key, row.held, row.used, row.idle, row.waste, row.share) for row in rows] == [
        ("team-b", 40, 30, 0, 10, 75.0),
        ("team-a", 16, 8, 5, 8, 50.0),
    ]


def test_what_was_not_measured_is_said_and_counts_neither_as_used_nor_as_waste() -> None:
    (row,) = add_up([Hours(key="a", held=8), Hours(key="a", held=2, used=1, idle=0, measured=2)])
    assert (row.held, row.used, row.waste, row.share, row.unmeasured) == (10, 1, 1, 50.0, 8)
    (blank,) = add_up([Hours(key="a", held=8)])
    assert (blank.used, blank.idle, blank.waste, blank.share) == (None, None, None, None)


@pytest.mark.parametrize(
    ("profile", "part"), [("", 1.0), ("1g.18gb", 1 / 7), ("3g.71gb+me", 3 / 7), ("7g.141gb", 1.0), ("odd", 1.0)]
)
def test_a_mig_instance_is_a_part_of_a_card(profile: str, part: float) -> None:
    assert part_of_card(profile) == pytest.approx(part)


def test_answers_become_hours_by_group_and_profile() -> None:
    whole, instance = {"namespace": "a"}, {"namespace": "a", "GPU_I_PROFILE": "1g.18gb"}
    answers = Answers(
        held=[Sample(whole, 10.0), Sample(instance, 7.0), Sample({"namespace": "b"}, 3.0)],
        used=[Sample(whole, 4.0), Sample(instance, 3.5)],
        idle=[Sample(whole, 2.0)],
        measured=[Sample(whole, 10.0), Sample(instance, 7.0)],
    )
    rows = add_up(hours_from(answers, By.NAMESPACE, lambda labels: labels["namespace"]))
    assert [(row.key, row.held, row.used, row.idle) for row in rows] == [("a", 11.0, 4.5, 2.0), ("b", 3.0, None, None)]


def test_a_pod_without_an_owner_stands_for_itself() -> None:
    labels = {"namespace": "a", "pod": "p", "owner_kind": "Job", "owner_name": "train"}
    alone = {"namespace": "a", "pod": "q", "owner_kind": "<none>", "owner_name": "<none>"}
    assert owners_from([Sample(labels, 1), Sample(alone, 1)]) == {("a", "p"): "a/Job/train"}


def test_prometheus_is_asked_for_sums_at_a_bounded_number_of_moments() -> None:
    for since in (timedelta(hours=1), WEEK, timedelta(days=365)):
        step = step_for(since)
        assert step >= timedelta(seconds=15)
        assert since / step <= 2100
    for by in By:
        for expression in questions(by, WEEK, step_for(WEEK)).values():
            assert expression.startswith("sum by (")
            assert "[604800s:300s]" in expression


def test_without_prometheus_pods_count_since_they_started_and_only_within_the_time_asked_for() -> None:
    cards = [card(slot=0x18, pods=("a/p", "a/q"), utilisation=0), card(slot=0x2A, pods=("b/r",), utilisation=90)]
    pods = {
        ("a", "p"): PodStart(started=NOW - timedelta(hours=4), owner="a/Job/p"),
        ("a", "q"): PodStart(started=NOW - timedelta(days=30)),
    }
    found = held_now(cards, pods, By.NAMESPACE, now=NOW, since=timedelta(days=1))
    rows = {row.key: row for row in add_up(found.hours)}
    assert rows["a"].held == pytest.approx(4 / 2 + 24 / 2)
    assert (rows["b"].held, found.unknown, found.cards, found.idle_cards) == (0, 1, 2, 1)
    assert rows["a"].used is None


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        (By.POOL, {"training"}),
        (By.MODEL, {"NVIDIA H200"}),
        (By.NODE, {"h200-1"}),
        (By.OWNER, {"a/Job/p", "a/Pod/q"}),
        (By.NAMESPACE, {"a"}),
    ],
)
def test_what_is_held_now_is_grouped_as_asked(by: By, keys: set[str]) -> None:
    pods = {("a", "p"): PodStart(started=NOW, owner="a/Job/p"), ("a", "q"): PodStart(started=NOW)}
    found = held_now([card(pods=("a/p", "a/q"))], pods, by, now=NOW, since=WEEK)
    assert {row.key for row in add_up(found.hours)} == keys


def test_a_period_is_a_number_of_hours_days_or_weeks() -> None:
    assert [read_period(text) for text in ("12h", "7d", "4w")] == [timedelta(hours=12), WEEK, timedelta(weeks=4)]
    assert [read_period(text) for text in ("", "7", "0d", "-1d", "1y", "99999d", "7d ")] == [None] * 7
