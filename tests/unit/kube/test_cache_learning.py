"""A cache shows this process's own writes as soon as they are answered, and the watch never takes it back in time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.errors import Gone
from gpu_control_plane.kube.objects import Key, Object, ObjectMeta, Resource
from gpu_control_plane.kube.watch import Batch

ONE = Key("one")


class Item(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("test.example", "v1", "Item", "items", namespaced=False)

    value: str = ""


def item(version: int, value: str = "", uid: str = "u", name: str = "one") -> Item:
    return Item(metadata=ObjectMeta(name=name, uid=uid, resource_version=str(version)), value=value)


class ScriptedWatch:
    """A watch that brings what the test puts into it."""

    def __init__(self) -> None:
        self._batches: asyncio.Queue[Batch[Item] | Gone] = asyncio.Queue()

    async def changes(self, since: str | None) -> AsyncGenerator[Batch[Item]]:
        while True:
            batch = await self._batches.get()
            try:
                if isinstance(batch, Gone):
                    raise batch
                yield batch
            finally:
                self._batches.task_done()

    async def bring(self, changed: Item, *, deleted: bool = False) -> None:
        await self._send(Batch([(changed, deleted)], changed.metadata.resource_version))

    async def expire(self) -> None:
        """The version to resume from is too old: the cache begins to list everything again."""
        await self._send(Gone(410, "Expired", "too old resource version"))
        await asyncio.sleep(0)

    async def list(self, *items: Item) -> None:
        """A part of a list."""
        await self._send(Batch([(each, False) for each in items]))

    async def list_unreadable(self, *keys: Key) -> None:
        await self._send(Batch([], unreadable=keys))

    async def complete_list(self, version: int) -> None:
        await self._send(Batch([], str(version), synced=True))

    async def _send(self, batch: Batch[Item] | Gone) -> None:
        self._batches.put_nowait(batch)
        await self._batches.join()
        await asyncio.sleep(0)


Watched = tuple[Cache[Item], ScriptedWatch]


@asynccontextmanager
async def watching(*, selected: bool) -> AsyncIterator[Watched]:
    watch = ScriptedWatch()
    cache: Cache[Item] = Cache(Item, watch, selects=lambda _new: not selected)
    task = asyncio.create_task(cache.run())
    await watch.list(item(5, "first"))
    await watch.complete_list(5)
    yield cache, watch
    task.cancel()


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    """A cache of everything."""
    async with watching(selected=False) as found:
        yield found


@pytest.fixture
async def selected() -> AsyncIterator[Watched]:
    """A cache whose selection only the API server understands."""
    async with watching(selected=True) as found:
        yield found


def value(cache: Cache[Item], name: str = "one") -> str | None:
    held = cache.get(name)
    return held.value if held else None


def changes_heard(cache: Cache[Item]) -> list[str | None]:
    """The values that handlers get from now on."""
    heard: list[str | None] = []
    cache.on_change(lambda _old, new: heard.append(new.value if new else None))
    return heard


async def test_a_write_is_shown_before_the_watch_brings_it(watched: Watched) -> None:
    cache, watch = watched
    heard = changes_heard(cache)
    cache.learn(item(7, "ours"))
    assert value(cache) == "ours"
    await watch.bring(item(7, "ours"))
    assert heard == ["first", "ours"]


async def test_versions_before_the_write_are_not_shown_again(watched: Watched) -> None:
    cache, watch = watched
    cache.learn(item(7, "ours"))
    await watch.bring(item(6, "theirs, before ours"))
    assert value(cache) == "ours"
    await watch.bring(item(8, "theirs, after ours"))
    assert value(cache) == "theirs, after ours"


async def test_an_answer_that_comes_after_the_deletion_brings_nothing_back(watched: Watched) -> None:
    cache, watch = watched
    await watch.bring(item(9), deleted=True)
    cache.learn(item(7, "ours"))
    assert value(cache) is None


async def test_an_object_made_anew_replaces_the_old_one_whatever_its_version(watched: Watched) -> None:
    cache, watch = watched
    cache.learn(item(9, "ours"))
    await watch.bring(item(9, "ours"))
    await watch.bring(item(8, "made anew", uid="v"))
    assert value(cache) == "made anew"


async def test_a_list_is_believed_even_where_versions_have_gone_back(watched: Watched) -> None:
    cache, watch = watched
    cache.learn(item(9, "ours"))
    await watch.expire()
    await watch.list(item(3, "restored from a backup", uid="v"))
    await watch.complete_list(4)
    assert value(cache) == "restored from a backup"


async def test_a_list_brings_back_an_older_version_of_the_same_object(watched: Watched) -> None:
    cache, watch = watched
    await watch.bring(item(9, "written after the backup"))
    cache.learn(item(11, "ours, after the backup"))
    await watch.expire()
    await watch.list(item(3, "as in the backup"))
    await watch.complete_list(4)
    assert value(cache) == "as in the backup"
    await watch.bring(item(6, "written since"))
    assert value(cache) == "written since"


async def test_a_list_brings_back_what_was_deleted_after_the_backup(watched: Watched) -> None:
    cache, watch = watched
    cache.learn_deletion(ONE, "u")
    await watch.expire()
    await watch.list(item(3, "as in the backup"))
    await watch.complete_list(4)
    assert (value(cache), cache.expected_deletions) == ("as in the backup", 0)


async def test_what_exists_and_cannot_be_read_is_shown_as_it_was_before(watched: Watched) -> None:
    cache, watch = watched
    await watch.expire()
    await watch.list_unreadable(ONE, Key("two"))
    await watch.complete_list(9)
    assert (value(cache), value(cache, "two")) == ("first", None)


async def test_a_creation_is_shown_at_once(watched: Watched) -> None:
    cache, watch = watched
    heard = changes_heard(cache)
    cache.learn(item(7, "new", uid="v", name="two"))
    assert value(cache, "two") == "new"
    await watch.bring(item(7, "new", uid="v", name="two"))
    assert heard == ["first", "new"]


async def test_a_creation_that_was_undone_meanwhile_is_not_shown(watched: Watched) -> None:
    cache, watch = watched
    await watch.bring(item(7, "new", uid="v", name="two"))
    await watch.bring(item(8, "new", uid="v", name="two"), deleted=True)
    cache.learn(item(7, "new", uid="v", name="two"))
    assert value(cache, "two") is None


async def test_a_deletion_is_shown_at_once_and_older_versions_do_not_undo_it(watched: Watched) -> None:
    cache, watch = watched
    heard = changes_heard(cache)
    cache.learn_deletion(ONE, "u")
    assert value(cache) is None
    await watch.bring(item(6, "theirs, before the deletion"))
    await watch.bring(item(8, "theirs, before the deletion"), deleted=True)
    assert (value(cache), heard) == (None, ["first", None])
    await watch.bring(item(9, "made anew", uid="v"))
    assert value(cache) == "made anew"


async def test_the_deletion_of_an_earlier_object_of_that_name_leaves_the_present_one(watched: Watched) -> None:
    cache, _ = watched
    cache.learn_deletion(ONE, "earlier")
    assert value(cache) == "first"


async def test_what_was_deleted_and_created_again_stays_while_the_watch_catches_up(watched: Watched) -> None:
    cache, watch = watched
    heard = changes_heard(cache)
    cache.learn_deletion(ONE, "u")
    cache.learn(item(9, "again", uid="v"))
    await watch.bring(item(6, "theirs, before the deletion"))
    await watch.bring(item(8), deleted=True)
    await watch.bring(item(9, "again", uid="v"))
    assert (value(cache), heard) == ("again", ["first", None, "again"])


async def test_what_others_deleted_and_we_created_again_stays_while_the_watch_catches_up(watched: Watched) -> None:
    cache, watch = watched
    heard = changes_heard(cache)
    cache.learn(item(9, "again", uid="v"))
    await watch.bring(item(6, "theirs, before the deletion"))
    await watch.bring(item(8), deleted=True)
    assert (value(cache), heard) == ("again", ["first", "again"])


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "watched"])
async def test_an_earlier_object_of_the_name_of_a_creation_is_never_shown(watched: Watched, *, listed: bool) -> None:
    cache, watch = watched
    if listed:
        await watch.expire()
    heard = changes_heard(cache)
    cache.learn(item(9, "ours", uid="w", name="two"))
    if listed:
        await watch.list(item(5, "first"), item(6, "an earlier one", uid="v", name="two"))
        await watch.complete_list(7)
    else:
        await watch.bring(item(6, "an earlier one", uid="v", name="two"))
    await watch.bring(item(8, uid="v", name="two"), deleted=True)
    await watch.bring(item(9, "ours", uid="w", name="two"))
    assert heard == ["first", "ours"]


async def test_answers_that_arrive_in_another_order_end_with_the_last_state(watched: Watched) -> None:
    cache, _ = watched
    cache.learn(item(9, "again", uid="v"))
    cache.learn(item(7, "before it was deleted"))
    assert value(cache) == "again"
    cache.learn_deletion(ONE, "v")
    cache.learn(item(10, "before it was deleted", uid="v"))
    assert value(cache) is None


async def test_a_selected_cache_shows_only_what_the_watch_has_shown(selected: Watched) -> None:
    cache, _ = selected
    cache.learn(item(9, "new", uid="v", name="two"))
    cache.learn(item(10, "made anew", uid="w"))
    assert (value(cache), value(cache, "two")) == ("first", None)
    cache.learn(item(11, "ours"))
    assert value(cache) == "ours"
    cache.learn_deletion(ONE, "u")
    assert value(cache) is None


async def test_what_a_write_takes_out_of_the_selection_goes_when_the_watch_says_so(selected: Watched) -> None:
    cache, watch = selected
    cache.learn(item(7, "selected no more"))
    cache.learn(item(9, "nor now"))
    await watch.bring(item(7, "selected no more"), deleted=True)
    assert value(cache) is None
    cache.learn(item(10, "nor now"))
    assert value(cache) is None


@pytest.mark.parametrize("listed_first", [True, False], ids=["listed-before", "listed-after"])
async def test_a_write_during_a_list_stays(watched: Watched, *, listed_first: bool) -> None:
    cache, watch = watched
    await watch.expire()
    if listed_first:
        await watch.list(item(6, "theirs, before ours"))
    cache.learn(item(7, "ours"))
    if not listed_first:
        await watch.list(item(6, "theirs, before ours"))
    await watch.complete_list(6)
    assert value(cache) == "ours"


async def test_a_creation_after_the_state_that_is_being_listed_stays(watched: Watched) -> None:
    cache, watch = watched
    heard = changes_heard(cache)
    await watch.expire()
    cache.learn(item(9, "new", uid="v", name="two"))
    await watch.list(item(5, "first"))
    await watch.complete_list(8)
    await watch.bring(item(9, "new", uid="v", name="two"))
    assert heard == ["first", "new"]
    await watch.bring(item(10, uid="v", name="two"), deleted=True)
    assert value(cache, "two") is None


async def test_a_creation_that_was_undone_before_the_list_goes_with_it(watched: Watched) -> None:
    cache, watch = watched
    await watch.expire()
    cache.learn(item(7, "new", uid="v", name="two"))
    await watch.list(item(5, "first"))
    await watch.complete_list(8)
    assert value(cache, "two") is None


@pytest.mark.parametrize("listed", ["before", "after", "not at all"])
async def test_a_deletion_during_a_list_is_not_undone_by_it(watched: Watched, listed: str) -> None:
    cache, watch = watched
    heard = changes_heard(cache)
    await watch.expire()
    if listed == "before":
        await watch.list(item(6, "listed"))
    cache.learn_deletion(ONE, "u")
    if listed == "after":
        await watch.list(item(6, "listed"))
    await watch.complete_list(7)
    if listed != "not at all":
        await watch.bring(item(7, "theirs, before the deletion"))
        await watch.bring(item(8), deleted=True)
    assert value(cache) is None
    assert heard == ["first", *(["listed"] if listed == "before" else []), None]


async def test_deletions_that_the_watch_has_reported_or_never_will_are_forgotten(watched: Watched) -> None:
    cache, watch = watched
    cache.learn_deletion(ONE, "u")
    await watch.bring(item(7), deleted=True)
    assert cache.expected_deletions == 0
    await watch.bring(item(8, uid="v"))
    cache.learn_deletion(ONE, "v")
    assert cache.expected_deletions == 1
    await watch.expire()
    await watch.complete_list(10)
    assert cache.expected_deletions == 0
