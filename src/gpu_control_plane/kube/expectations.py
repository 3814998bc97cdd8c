"""What a process has written and its watch has not brought yet.

kube-controller-manager lets a controller wait until its watch shows what it wrote (`ControllerExpectations`). Here a
cache takes over the API server's answer instead, so that the next decision sees it without waiting. `Expectations`
keeps the watch from undoing that while it still brings what happened before the write: a deleted object is not shown
again, and a created one is not dropped because a list that began earlier lacks it.

A lost answer says nothing. For decisions that must count every write, `LostAnswers` says when to ask the API
server first.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from gpu_control_plane.kube.objects import Key, Object


class Expectations[T: Object]:
    """The answers that one cache has taken over ahead of its watch.

    `selects` says whether a new object is certain to match the selection of the watch. Where that is not certain, an
    object is taken over only if the watch has shown it already, under the same uid: otherwise the watch might never
    report it, nor its end.
    """

    def __init__(self, selects: Callable[[T], bool]) -> None:
        self._selects = selects
        self._watched_to = 0
        self._deleted: dict[str, int] = {}
        """Objects whose deletion was answered: by uid, the last version that was held."""
        self._list: _List | None = None

    @property
    def listing(self) -> bool:
        return self._list is not None

    @property
    def deletions(self) -> int:
        """How many deletions the watch has not reported yet."""
        return len(self._deleted)

    def accept(self, answer: T, held: T | None) -> bool:
        """Whether `answer` is newer than both the watch and what is held, and so is to be held from now on."""
        version = version_number(answer)
        if not 0 < self._watched_to < version or answer.metadata.uid in self._deleted:
            return False
        if held is not None and version_number(held) >= version:
            return False
        if held is not None and held.metadata.uid == answer.metadata.uid:
            if self._list is not None:
                self._list.answered.add(answer.key)
            return True
        if not self._selects(answer):
            return False
        if held is not None:
            # Another object of the same name exists, so the one that is held does not.
            self.accept_deletion(held)
        if self._list is not None:
            self._list.missing.add(answer.key)
            self._list.created.add(answer.key)
            self._list.answered.add(answer.key)
        return True

    def accept_deletion(self, held: T) -> None:
        """The object that is held does not exist any more; earlier versions of it may still be on their way."""
        uid = held.metadata.uid
        self._deleted[uid] = version_number(held)
        if self._list is not None and held.key not in self._list.missing:
            self._list.deleted.add(uid)

    def overtakes(self, item: T, held: T | None) -> bool:
        """Whether, by an answer, the object is deleted of which the watch or a list brings this version."""
        uid = item.metadata.uid
        deleted = uid in self._deleted or (held is not None and self._replaces(held, item))
        if deleted:
            self._deleted[uid] = version_number(item)
        if self._list is not None:
            self._list.show(item.key)
            if deleted:
                self._list.deleted.add(uid)
        return deleted

    def overtakes_deletion(self, item: T) -> bool:
        """Whether this deletion was answered already. What is held under its name is another object then."""
        if self._list is not None:
            self._list.show(item.key)
        return self._deleted.pop(item.metadata.uid, None) is not None

    def watched_to(self, version: str) -> None:
        """The watch has brought everything up to this version."""
        self._watched_to = _number(version)

    def begin_list(self, held: Iterable[Key]) -> None:
        """Everything is listed anew. The list is a consistent read: it shows all that was answered before it began."""
        self._deleted.clear()
        self._list = _List(held)

    def exists(self, key: Key) -> None:
        """The list has this object, though not in a form that can be read."""
        if self._list is not None:
            self._list.show(key)

    def replaces(self, held: T, item: T) -> bool:
        """Whether `item`, which the watch or a list brings, takes the place of what is held.

        A list is believed whatever its versions say: after etcd was restored from a backup they are lower than those
        that are held, or the same for something else. Only what was answered since the list began may be newer.
        """
        if self._list is not None and held.key not in self._list.answered:
            return held != item
        if held.metadata.resource_version == item.metadata.resource_version:
            return False
        return held.metadata.uid != item.metadata.uid or version_number(item) >= version_number(held)

    def complete_list(self, version: str | None) -> list[Key]:
        """The list has shown the state at `version`. Returns what is held and was not in it; each is to be forgotten
        if it `is_gone`, and then the list ends."""
        self._watched_to = _number(version)
        return list(self._list.missing) if self._list is not None else []

    def is_gone(self, held: T) -> bool:
        """Whether an object that was not listed is gone, rather than created after the state that was listed."""
        created = self._list is not None and held.key in self._list.created
        return not created or version_number(held) <= self._watched_to

    def end_list(self) -> None:
        """The watch will report those deletions only that came after the state that was listed."""
        listed = self._list.deleted if self._list is not None else ()
        self._deleted = {
            uid: version for uid, version in self._deleted.items() if uid in listed or version > self._watched_to
        }
        self._list = None

    def _replaces(self, held: T, item: T) -> bool:
        """Whether the held object is known from an answer, and `item` is an earlier one of the same name."""
        if held.metadata.uid == item.metadata.uid or not 0 < version_number(item) < version_number(held):
            return False
        return held.key in self._list.created if self._list is not None else version_number(held) > self._watched_to


class _List:
    """A list under way."""

    def __init__(self, held: Iterable[Key]) -> None:
        self.missing = set(held)
        """What is held and has not been listed."""
        self.created: set[Key] = set()
        """Of the missing, those that were created since the list began."""
        self.answered: set[Key] = set()
        """What is held as it was answered since the list began."""
        self.deleted: set[str] = set()
        """Uids of objects that were listed although they are deleted: their deletion is still to be reported."""

    def show(self, key: Key) -> None:
        self.missing.discard(key)
        self.created.discard(key)


class LostAnswers:
    """Whether a write may have landed that the caches of this process cannot know of: its answer was lost, or the
    leader before this process made it.

    While `possible`, list what may have been written and let the cache learn it (`Cache.learn`), then call `read_back`.
    """

    def __init__(self) -> None:
        self.possible = True

    @contextmanager
    def unless_answered(self) -> Iterator[None]:
        """Around one write: if it fails, it may have landed nevertheless."""
        possible, self.possible = self.possible, True
        yield
        self.possible = possible

    def read_back(self) -> None:
        """The caches have learned what the API server holds."""
        self.possible = False

    def suspect(self) -> None:
        """Another process may have written, as before this one began to lead."""
        self.possible = True


def version_number(item: Object) -> int:
    """An object's resourceVersion as the number that it is since Kubernetes 1.35, and has always been in its own API
    server; 0 for what another server may use instead."""
    return _number(item.metadata.resource_version)


def _number(version: str | None) -> int:
    return int(version) if version and version.isdecimal() else 0
