"""Patches are right, whatever the documents, and touch only what differs."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.kube.json_patch import Json, Op, Operation, diff, same

leaves = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, -1.5]) | st.text("ab~/0", max_size=3)
)
documents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text("ab~/01", max_size=3), inner, max_size=4),
    max_leaves=25,
)


def applied(document: Json, patch: tuple[Operation, ...]) -> Json:
    """RFC 6902 in its simplest form, written for this test alone."""
    root: dict[str, Json] = {"": deepcopy(document)}
    for operation in patch:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation.path.split("/")]
        target: Json = root
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]  # type: ignore[index]
        value: Json = deepcopy(operation.value)  # type: ignore[assignment]
        if isinstance(target, list):
            place = int(last)
            assert 0 <= place <= len(target) - (operation.op is not Op.ADD)
            if operation.op is Op.ADD:
                target.insert(place, value)
            elif operation.op is Op.REMOVE:
                del target[place]
            else:
                target[place] = value
        else:
            assert isinstance(target, dict)
            assert (last in target) == (operation.op is not Op.ADD)
            if operation.op is Op.REMOVE:
                del target[last]
            else:
                target[last] = value
    return root[""]


@given(before=documents, after=documents)
def test_a_patch_turns_one_document_into_the_other(before: Json, after: Json) -> None:
    assert same(applied(before, diff(before, after)), after)


@given(document=documents)
def test_equal_documents_need_no_patch(document: Json) -> None:
    assert diff(document, deepcopy(document)) == ()


@given(
    items=st.lists(st.integers(0, 50), max_size=12, unique=True), place=st.integers(0, 12), value=st.integers(51, 60)
)
def test_one_more_element_is_one_step(items: list[int], place: int, value: int) -> None:
    before: list[Json] = list(items)
    after = [*before[:place], value, *before[place:]]
    assert diff(before, after) == (Operation(Op.ADD, f"/{min(place, len(before))}", value),)


@given(items=st.lists(st.integers(0, 5), min_size=1, max_size=12), data=st.data())
def test_one_element_less_is_one_step(items: list[int], data: st.DataObject) -> None:
    before: list[Json] = list(items)
    place = data.draw(st.integers(0, len(before) - 1))
    patch = diff(before, [*before[:place], *before[place + 1 :]])
    assert [step.op for step in patch] == [Op.REMOVE]


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({}, {"a": 1}, [(Op.ADD, "/a", 1)]),
        ({"a": 1}, {}, [(Op.REMOVE, "/a", None)]),
        ({"a": 1}, {"a": 2}, [(Op.REPLACE, "/a", 2)]),
        ({"a": 1}, {"a": True}, [(Op.REPLACE, "/a", True)]),
        ({"a": 1}, {"a": 1.0}, [(Op.REPLACE, "/a", 1.0)]),
        ({"a": None}, {}, [(Op.REMOVE, "/a", None)]),
        ({}, {"a": None}, [(Op.ADD, "/a", None)]),
        ({"a/b~c": 1}, {"a/b~c": 2}, [(Op.REPLACE, "/a~1b~0c", 2)]),
        ({"a": {"b": {"c": 1, "d": 2}}}, {"a": {"b": {"c": 1, "d": 3}}}, [(Op.REPLACE, "/a/b/d", 3)]),
        ({"a": [1]}, {"a": {"0": 1}}, [(Op.REPLACE, "/a", {"0": 1})]),
        ([1, 2, 3], [3, 2, 1], [(Op.REPLACE, "/0", 3), (Op.REPLACE, "/2", 1)]),
        ([1, 2, 3, 4], [2, 3, 4, 5], [(Op.REMOVE, "/0", None), (Op.ADD, "/3", 5)]),
        (
            [{"name": "app", "image": "a", "env": []}],
            [{"name": "sidecar", "image": "s"}, {"name": "app", "image": "a", "env": [1]}],
            [(Op.ADD, "/0", {"name": "sidecar", "image": "s"}), (Op.ADD, "/1/env/0", 1)],
        ),
    ],
)
def test_only_what_differs_is_touched(before: Json, after: Json, patch: list[tuple[Op, str, Json]]) -> None:
    assert [(step.op, step.path, None if step.op is Op.REMOVE else step.value) for step in diff(before, after)] == patch


def test_long_lists_are_compared_in_bounded_time() -> None:
    before: list[Json] = list(range(3000))
    after: list[Json] = [value + 1 if isinstance(value, int) else value for value in before][::2]
    assert same(applied(before, diff(before, after)), after)
