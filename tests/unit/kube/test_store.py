"""The store is a dictionary whose indexes never lie, whatever is put in and taken out."""

from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.kube.objects import Key, Object, ObjectMeta, Resource
from gpu_control_plane.kube.store import Store


class Item(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("test.example", "v1", "Item", "items")

    tags: tuple[str, ...] = ()


_names = st.sampled_from("abc")
_puts = st.tuples(_names, st.lists(st.sampled_from("xyz"), max_size=3))
_removals = st.tuples(_names, st.none())


@given(st.lists(st.one_of(_puts, _removals)), st.integers(0, 20))
def test_indexes_agree_with_the_objects(steps: list[tuple[str, list[str] | None]], index_at: int) -> None:
    store: Store[Item] = Store({"tag": lambda item: item.tags})
    truth: dict[str, Item] = {}
    for number, (name, tags) in enumerate(steps):
        if number == index_at:
            store.add_index("late", lambda item: item.tags)
        if tags is None:
            assert store.remove(Key(name, "ns")) == truth.pop(name, None)
        else:
            item = Item(metadata=ObjectMeta(name=name, namespace="ns"), tags=tuple(tags))
            assert store.put(item) == truth.get(name)
            truth[name] = item
    store.add_index("late", lambda item: item.tags)
    assert list(store) == [store.get(key) for key in store.keys()]  # noqa: SIM118 - a store iterates over objects
    assert {item.name: item for item in store} == truth
    for index in ("tag", "late"):
        for tag in "xyz":
            expected = {name for name, item in truth.items() if tag in item.tags}
            assert {item.name for item in store.by_index(index, tag)} == expected
            assert store.count(index, tag) == len(expected)
