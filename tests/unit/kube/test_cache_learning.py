"""A cache shows one's own writes at once, and the watch never takes it back in time."""

import asyncio
from collections.abc import AsyncGenerator
from typing import ClassVar

import pytest

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.objects import Object, ObjectMeta, Resource
from gpu_control_plane.kube.watch import Batch


class Item(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("test.example", "v1", "Item", "items", namespaced=False)

    value: str = ""


def item(version: int, value: str, uid: str = "u") -> Item:
    return Item(metadata=ObjectMeta(name="one", uid=uid, resource_version=str(version)), value=value)


class Script:
    """A watch that says what the test wants it to say."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Batch[Item]] = asyncio.Queue()

    async def changes(self, since: str | None) -> AsyncGenerator[Batch[Item]]:
        while True:
            yield await self.queue.get()
            self.queue.task_done()


@pytest.fixture
async def watched() -> AsyncGenerator[tuple[Cache[Item], Script]]:
    script = Script()
    cache: Cache[Item] = Cache(Item, script)
    task = asyncio.create_task(cache.run())
    script.queue.put_nowait(Batch([(item(5, "first"), False)], "5", synced=True))
    await cache.synced()
    yield cache, script
    task.cancel()


async def say(script: Script, changed: Item, *, deleted: bool = False) -> None:
    script.queue.put_nowait(Batch([(changed, deleted)], changed.metadata.resource_version))
    await script.queue.join()


def value(cache: Cache[Item]) -> str | None:
    held = cache.get("one")
    return held.value if held else None


async def test_a_write_is_seen_before_the_watch_tells(watched: tuple[Cache[Item], Script]) -> None:
    cache, script = watched
    heard: list[str | None] = []
    cache.on_change(lambda _old, new: heard.append(new.value if new else None))
    cache.learn(item(7, "ours"))
    assert value(cache) == "ours"
    await say(script, item(7, "ours"))
    assert heard == ["first", "ours"]


async def test_what_the_write_has_overtaken_is_not_shown_again(watched: tuple[Cache[Item], Script]) -> None:
    cache, script = watched
    cache.learn(item(7, "ours"))
    await say(script, item(6, "theirs, before ours"))
    assert value(cache) == "ours"
    await say(script, item(8, "theirs, after ours"))
    assert value(cache) == "theirs, after ours"


async def test_an_answer_that_comes_after_the_deletion_brings_nothing_back(watched: tuple[Cache[Item], Script]) -> None:
    cache, script = watched
    await say(script, item(9, "", uid="u"), deleted=True)
    cache.learn(item(7, "ours"))
    assert value(cache) is None


async def test_what_the_selection_never_showed_is_not_learned(watched: tuple[Cache[Item], Script]) -> None:
    cache, _ = watched
    cache.learn(Item(metadata=ObjectMeta(name="other", resource_version="9")))
    assert cache.get("other") is None


async def test_an_object_made_anew_replaces_the_old_one_whatever_its_version(
    watched: tuple[Cache[Item], Script],
) -> None:
    cache, script = watched
    cache.learn(item(9, "ours"))
    await say(script, item(8, "made anew", uid="v"))
    assert value(cache) == "made anew"
