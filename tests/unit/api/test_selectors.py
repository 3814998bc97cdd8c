"""Label selectors select what Kubernetes' own would."""

import pytest

from gpu_control_plane.api.selectors import LabelSelector, Operator, Requirement, matches_labels

LABELS = {"zone": "a", "gpu": ""}


def requirement(key: str, operator: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=(Requirement(key=key, operator=Operator(operator), values=values),))


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (LabelSelector(), True),
        (LabelSelector(match_labels={"zone": "a"}), True),
        (LabelSelector(match_labels={"zone": "b"}), False),
        (LabelSelector(match_labels={"rack": "1"}), False),
        (requirement("zone", "In", "a", "b"), True),
        (requirement("zone", "In", "b"), False),
        (requirement("rack", "In", "b"), False),
        (requirement("zone", "NotIn", "b"), True),
        (requirement("zone", "NotIn", "a"), False),
        (requirement("rack", "NotIn", "a"), True),
        (requirement("gpu", "Exists"), True),
        (requirement("rack", "Exists"), False),
        (requirement("rack", "DoesNotExist"), True),
        (requirement("gpu", "DoesNotExist"), False),
        (requirement("gpu", "Resembles", "x"), False),
    ],
)
def test_a_selector_selects_by_labels(selector: LabelSelector, selected: bool) -> None:
    assert selector.matches(LABELS) is selected


@pytest.mark.parametrize(("pairs", "matched"), [({}, True), ({"gpu": ""}, True), ({"zone": "a", "rack": ""}, False)])
def test_pairs_match_when_each_is_there(pairs: dict[str, str], matched: bool) -> None:
    """As a nodeSelector does: a label that is absent is not the same as an empty one."""
    assert matches_labels(pairs, LABELS) is matched


def test_all_parts_must_agree() -> None:
    both = LabelSelector(
        match_labels={"zone": "a"}, match_expressions=(Requirement(key="gpu", operator=Operator.DOES_NOT_EXIST),)
    )
    assert not both.matches(LABELS)
