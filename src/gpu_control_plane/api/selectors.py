"""Label selectors as Kubernetes writes them, and what they match: the only place that compares labels."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from gpu_control_plane.api.shapes import Part
from gpu_control_plane.kube.fields import ATOMIC_MAP, OpenEnum, Rule, about

_LabelKey = Annotated[str, about(minLength=1, maxLength=317)]
_LabelValue = Annotated[str, about(maxLength=63)]


class Operator(OpenEnum):
    """How a label is compared."""

    IN = "In", "the label has one of the values."
    NOT_IN = "NotIn", "the label is absent or has none of the values."
    EXISTS = "Exists", "the label is there."
    DOES_NOT_EXIST = "DoesNotExist", "the label is absent."


class Requirement(Part, frozen=True, kw_only=True):
    """One comparison of a label."""

    key: Annotated[_LabelKey, about("Key of the label.")]
    operator: Annotated[Operator, about("How the label is compared.")]
    values: Annotated[
        tuple[_LabelValue, ...], about("Values to compare with, for In and NotIn.", unique=True, maxItems=64)
    ] = ()

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            "In and NotIn need at least one value; Exists and DoesNotExist take none",
        ),
    )

    def matches(self, labels: Mapping[str, str]) -> bool:
        present, value = self.key in labels, labels.get(self.key)
        answers = {
            Operator.IN: present and value in self.values,
            Operator.NOT_IN: value not in self.values,
            Operator.EXISTS: present,
            Operator.DOES_NOT_EXIST: not present,
        }
        return answers.get(self.operator, False)


def matches_labels(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether the labels have all of these pairs, as a `nodeSelector` or `matchLabels` asks; none match all labels."""
    return all(labels.get(key) == value for key, value in selector.items())


class LabelSelector(Part, frozen=True, kw_only=True):
    """Selects by labels; all parts must agree, and an empty selector selects everything."""

    match_labels: Annotated[
        dict[str, _LabelValue], about("Labels that must have exactly these values.", maxProperties=32)
    ] = msgspec.field(default_factory=dict)
    match_expressions: Annotated[tuple[Requirement, ...], about("Comparisons that must all hold.", maxItems=16)] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected. An operator that is not known here selects nothing."""
        return matches_labels(self.match_labels, labels) and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )


Selector = Annotated[LabelSelector, about(**ATOMIC_MAP)]
