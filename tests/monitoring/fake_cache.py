"""A cache as far as metrics use it, whose changes the test makes; and the series of a registry."""

from collections.abc import Callable
from typing import cast

from prometheus_client import CollectorRegistry

from gpu_control_plane.kube import Cache, Object

type OnChange[T] = Callable[[T | None, T | None], None]


class FakeCache[T: Object]:
    """Objects by name, and handlers of their changes."""

    def __init__(self) -> None:
        self.held: dict[str, T] = {}
        self._handlers: list[OnChange[T]] = []

    @property
    def cache(self) -> Cache[T]:
        return cast("Cache[T]", self)

    def on_change(self, handler: OnChange[T]) -> None:
        self._handlers.append(handler)

    def get(self, name: str) -> T | None:
        return self.held.get(name)

    def put(self, new: T) -> None:
        self._change(new.name, new)

    def remove(self, name: str) -> None:
        if name in self.held:
            self._change(name, None)

    def _change(self, name: str, new: T | None) -> None:
        old = self.held.pop(name, None)
        if new is not None:
            self.held[name] = new
        for handler in self._handlers:
            handler(old, new)


def series(registry: CollectorRegistry, *names: str) -> dict[tuple[str, ...], float]:
    """Every series by its name and labels; only those of some metrics where these are named."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not names or sample.name in names
    }
