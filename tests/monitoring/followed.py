"""A cache as far as metrics know it, to be told changes by hand; and what a registry shows."""

from collections.abc import Callable
from typing import cast

from prometheus_client import CollectorRegistry

from gpu_control_plane.kube import Cache, Object

type Told[T] = Callable[[T | None, T | None], None]


class Objects[T: Object]:
    """Objects by name, and those who want to hear of changes."""

    def __init__(self) -> None:
        self.held: dict[str, T] = {}
        self._told: list[Told[T]] = []

    @property
    def cache(self) -> Cache[T]:
        return cast("Cache[T]", self)

    def on_change(self, told: Told[T]) -> None:
        self._told.append(told)

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
        for told in self._told:
            told(old, new)


def series(registry: CollectorRegistry, *names: str) -> dict[tuple[str, ...], float]:
    """Every series by its name and labels; only those of some metrics where these are named."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not names or sample.name in names
    }
