"""A small model of an API server that misbehaves in every way a real one does, driven by a seeded loop.

It keeps a history of changes, forgets the old part of it (410), cuts watches, refuses for a while, and delivers late.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import ClassVar

from gpu_control_plane.kube.errors import Gone, TooManyRequests, Unreachable, WatchBroken
from gpu_control_plane.kube.objects import Key, Object, ObjectMeta, Resource
from gpu_control_plane.kube.watch import Batch
from simulation.loop import SimulatedLoop


class Thing(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("test.example", "v1", "Thing", "things", namespaced=False)

    value: int = 0
    owner: str = ""


class World:
    """The truth: what exists, and the changes that led there."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.rng = loop.rng
        self.things: dict[Key, Thing] = {}
        self.quiet = False
        self._version = 0
        self._history: list[tuple[int, Thing, bool]] = []
        self._oldest = 0
        self._changed = asyncio.Event()

    async def live(self, changes: int) -> None:
        """Let things be born, changed and removed at random moments, then fall quiet."""
        for number in range(changes):
            await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.1, 3.0)))
            name = f"thing-{self.rng.randrange(6)}"
            if Key(name) in self.things and self.rng.random() < 0.3:
                self._record(self.things.pop(Key(name)), deleted=True)
            else:
                self._record(Thing(metadata=ObjectMeta(name=name), value=number, owner=self.rng.choice("ab")))
            if self.rng.random() < 0.05:
                self._oldest = self._version
        self.quiet = True

    def write(self, key: Key) -> Thing | None:
        """A write of the controller's own: the answer is what the server made of it."""
        thing = self.things.get(key)
        if thing is None:
            return None
        self._record(Thing(metadata=ObjectMeta(name=thing.name), value=thing.value + 1000, owner=thing.owner))
        return self.things[key]

    def _record(self, thing: Thing, *, deleted: bool = False) -> None:
        self._version += 1
        meta = ObjectMeta(name=thing.name, resource_version=str(self._version))
        thing = Thing(metadata=meta, value=thing.value, owner=thing.owner)
        if not deleted:
            self.things[thing.key] = thing
        self._history.append((self._version, thing, deleted))
        self._changed.set()
        self._changed = asyncio.Event()

    async def changes(self, since: str | None) -> AsyncGenerator[Batch[Thing]]:
        """The `Source` that caches read from."""
        await self._trouble()
        if since is None:
            at = self._version
            snapshot = list(self.things.values())
            self.rng.shuffle(snapshot)
            for thing in snapshot:
                yield Batch([(thing, False)])
                await self._trouble()
            yield Batch([], str(at), synced=True)
        else:
            at = int(since)
        async for batch in self._follow(at):
            yield batch

    async def _follow(self, at: int) -> AsyncGenerator[Batch[Thing]]:
        while True:
            if at < self._oldest:
                raise Gone(410, "Expired", "too old resource version")
            later = [change for change in self._history if change[0] > at][: self.rng.randint(1, 4)]
            if not later:
                await self._changed.wait()
                continue
            at = later[-1][0]
            yield Batch([(thing, deleted) for _, thing, deleted in later], str(at))
            await self._trouble()
            if self.rng.random() < 0.05:
                return

    async def _trouble(self) -> None:
        await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.01, 1.0)))
        if self.quiet:
            return
        match self.rng.randrange(25):
            case 0:
                raise WatchBroken("cut in the middle of an event")
            case 1:
                raise Unreachable("connection reset")
            case 2:
                raise TooManyRequests(429, "TooManyRequests", "storage is (re)initializing", 1.0)
