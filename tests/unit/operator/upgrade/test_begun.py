"""A turn counts from the write that gives it, whatever the cache shows."""

from gpu_control_plane.kube.objects import Object, ObjectMeta
from gpu_control_plane.operator.upgrade.begun import Begun


def node(name: str, version: int) -> Object:
    return Object(metadata=ObjectMeta(name=name, resource_version=str(version)))


def test_a_new_process_asks_before_it_gives_turns() -> None:
    assert not Begun().known
    begun = Begun()
    begun.learn([node("a", 12)])
    assert begun.known
    assert begun.unseen(lambda name: node(name, 9)) == {"a": "12"}


def test_a_turn_is_forgotten_once_the_cache_shows_it_or_the_node_is_gone() -> None:
    begun = Begun()
    begun.learn([node("a", 12), node("b", 13), node("c", 14)])
    cache = {"a": node("a", 12), "b": node("b", 100)}
    assert begun.unseen(cache.get) == {}


def test_after_a_write_without_an_answer_nobody_is_sure() -> None:
    begun = Begun()
    begun.learn([])
    unseen = begun.unseen(lambda _name: None)
    begun.doubt()
    assert not begun.known
    begun.restore(unseen, node("a", 20))
    assert begun.unseen(lambda name: node(name, 19)) == {"a": "20"}
