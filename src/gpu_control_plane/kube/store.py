"""Objects by key and by index, as one process sees them. Plain data, no network, no waiting."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from gpu_control_plane.kube.objects import Key, Object


class Store[T: Object]:
    """A dictionary of objects that keeps its indexes right at every change."""

    def __init__(self, indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None) -> None:
        self._objects: dict[Key, T] = {}
        self._index_of: dict[str, Callable[[T], Iterable[str]]] = dict(indexes or {})
        self._indexed: dict[str, dict[str, dict[Key, T]]] = {name: {} for name in self._index_of}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def keys(self) -> list[Key]:
        return list(self._objects)

    def by_index(self, index: str, value: str) -> list[T]:
        """The objects that `index` files under `value`."""
        return list(self._indexed[index].get(value, {}).values())

    def count(self, index: str, value: str) -> int:
        """How many objects `index` files under `value`, without gathering them."""
        return len(self._indexed[index].get(value, ()))

    def add_index(self, name: str, function: Callable[[T], Iterable[str]]) -> None:
        self._index_of[name] = function
        self._indexed[name] = {}
        for key, item in self._objects.items():
            self._file(name, key, item)

    def put(self, item: T) -> T | None:
        """Hold `item` under its key; returns what it replaces."""
        key = item.key
        old = self._objects.get(key)
        self._objects[key] = item
        for name in self._index_of:
            if old is not None:
                self._unfile(name, key, old)
            self._file(name, key, item)
        return old

    def remove(self, key: Key) -> T | None:
        """Forget the object; returns it if it was there."""
        old = self._objects.pop(key, None)
        if old is not None:
            for name in self._index_of:
                self._unfile(name, key, old)
        return old

    def _file(self, name: str, key: Key, item: T) -> None:
        entries = self._indexed[name]
        for value in self._index_of[name](item):
            entries.setdefault(value, {})[key] = item

    def _unfile(self, name: str, key: Key, item: T) -> None:
        entries = self._indexed[name]
        for value in self._index_of[name](item):
            held = entries.get(value)
            if held is not None:
                held.pop(key, None)
                if not held:
                    del entries[value]
