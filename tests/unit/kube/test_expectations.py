"""A controller that counts its writes knows when an answer may be missing."""

import pytest

from gpu_control_plane.kube.expectations import LostAnswers


def test_a_new_process_knows_no_answers_to_its_predecessor() -> None:
    assert LostAnswers().possible


def test_an_answered_write_leaves_no_doubt_and_an_unanswered_one_does() -> None:
    answers = LostAnswers()
    answers.read_back()
    with answers.unless_answered():
        meanwhile = answers.possible
    assert (meanwhile, answers.possible) == (True, False)
    with pytest.raises(TimeoutError), answers.unless_answered():
        raise TimeoutError
    assert answers.possible


def test_an_answered_write_says_nothing_of_an_earlier_one() -> None:
    answers = LostAnswers()
    answers.read_back()
    answers.suspect()
    with answers.unless_answered():
        pass
    assert answers.possible
