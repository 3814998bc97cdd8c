"""Which new objects a cache takes over from an answer, before its watch brings them."""

from typing import ClassVar

import pytest

from gpu_control_plane.kube import Object, ObjectMeta, Resource, Selection


class _Pod(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")


def _pod(namespace: str = "team-a", **labels: str) -> _Pod:
    return _Pod(metadata=ObjectMeta(name="pod", namespace=namespace, labels=labels))


@pytest.mark.parametrize(
    ("selection", "pod", "certain"),
    [
        (Selection(), _pod(), True),
        (Selection(namespace="team-a"), _pod(), True),
        (Selection(namespace="team-b"), _pod(), False),
        (Selection(labels="app"), _pod(app="web"), True),
        (Selection(labels="app"), _pod(), False),
        (Selection(labels="app=web"), _pod(app="web"), True),
        (Selection(labels="app==web"), _pod(app="web"), True),
        (Selection(labels="app=web"), _pod(app="db"), False),
        (Selection(labels="app=web,tier"), _pod(app="web", tier="front"), True),
        (Selection(labels="app=web,tier"), _pod(app="web"), False),
        (Selection(namespace="team-b", labels="app"), _pod(app="web"), False),
        # Other terms only the API server evaluates.
        (Selection(labels="app in (web, db)"), _pod(app="web"), False),
        (Selection(labels="app!=web"), _pod(app="db"), False),
        (Selection(labels="!app"), _pod(), False),
        (Selection(labels="app", fields="spec.nodeName="), _pod(app="web"), False),
    ],
)
def test_an_object_is_certain_to_be_selected_only_by_what_is_evaluated_here(
    selection: Selection, pod: _Pod, certain: bool
) -> None:
    assert selection.surely_selects(pod) is certain
