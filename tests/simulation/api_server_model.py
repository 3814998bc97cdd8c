"""A small model of an API server that misbehaves in every way a real one does, driven by a seeded loop.

It keeps a history of changes, forgets the old part of it (410), cuts watches, refuses for a while, delivers late, and
may be restored from a backup.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from gpu_control_plane.kube.errors import Gone, TooManyRequests, Unreachable, WatchBroken
from gpu_control_plane.kube.objects import Key, Object, ObjectMeta, Resource
from gpu_control_plane.kube.watch import Batch
from simulation.loop import SimulatedLoop


class Thing(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("test.example", "v1", "Thing", "things", namespaced=False)

    value: int = 0
    owner: str = ""


class _Change(msgspec.Struct, frozen=True):
    version: int
    thing: Thing
    before: Thing | None
    deleted: bool

    def events(self, owner: str) -> list[tuple[Thing, bool]]:
        """What a watch reports of it: a thing that leaves the selection is reported as deleted."""
        if not owner or self.thing.owner == owner:
            return [(self.thing, self.deleted)]
        return [(self.thing, True)] if self.before is not None and self.before.owner == owner else []


class Selected(msgspec.Struct, frozen=True):
    """The things of one owner, as a watch with a label selector reports them."""

    server: "ApiServerModel"
    owner: str

    def changes(self, since: str | None) -> AsyncGenerator[Batch[Thing]]:
        return self.server.changes(since, self.owner)


class ApiServerModel:
    """What exists, and the changes that led there."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.rng = loop.rng
        self.things: dict[Key, Thing] = {}
        self.quiet = False
        self._version = 1
        self._history: list[_Change] = []
        self._oldest = 0
        self._changed = asyncio.Event()
        self._away = False

    async def change_at_random(self, changes: int) -> None:
        """Create, change and delete things at random moments, then stop."""
        for number in range(changes):
            await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.1, 3.0)))
            name = f"thing-{self.rng.randrange(6)}"
            if Key(name) in self.things and self.rng.random() < 0.3:
                self.delete(Key(name))
            else:
                self.write(Key(name), number)
            if self.rng.random() < 0.05:
                self._oldest = self._version
        self.quiet = True

    async def restore(self, things: dict[Key, Thing], version: int) -> None:
        """Be away for a while, and come back as a backup has it: versions go back, and other changes will have them."""
        self._away = True
        self._wake()
        await asyncio.sleep(self.rng.uniform(5.0, 60.0))
        self.things, self._version, self._oldest = dict(things), version, version
        self._history.clear()
        self._away = False

    @property
    def version(self) -> int:
        return self._version

    def write(self, key: Key, value: int) -> Thing:
        """Change a thing, or create it; the answer is what the server made of it."""
        held = self.things.get(key)
        uid = held.metadata.uid if held is not None else f"uid-{self._version + 1}"
        meta = ObjectMeta(name=key.name, uid=uid, resource_version=str(self._version + 1))
        self.things[key] = Thing(metadata=meta, value=value, owner=self.rng.choice("ab"))
        self._record(self.things[key], held)
        return self.things[key]

    def delete(self, key: Key) -> str:
        """Delete a thing; its last version is that of the deletion. Returns its uid."""
        held = self.things.pop(key)
        self._record(replace(held, metadata=replace(held.metadata, resource_version=str(self._version + 1))), None)
        return held.metadata.uid

    def changed_since(self, thing: Thing) -> bool:
        return self.things.get(thing.key) != thing

    def _record(self, thing: Thing, before: Thing | None) -> None:
        self._version += 1
        self._history.append(_Change(self._version, thing, before, deleted=thing.key not in self.things))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def changes(self, since: str | None, owner: str = "") -> AsyncGenerator[Batch[Thing]]:
        """All changes, or those that a watch reports which selects things by their owner."""
        await self._fail_at_times()
        if since is None:
            at = self._version
            snapshot = [thing for thing in self.things.values() if not owner or thing.owner == owner]
            self.rng.shuffle(snapshot)
            for thing in snapshot:
                yield Batch([(thing, False)])
                await self._fail_at_times()
            yield Batch([], str(at), synced=True)
        else:
            at = int(since)
        async for batch in self._follow(at, owner):
            yield batch

    async def _follow(self, at: int, owner: str) -> AsyncGenerator[Batch[Thing]]:
        while True:
            if self._away:
                raise Unreachable("connection reset")
            if at < self._oldest:
                raise Gone(410, "Expired", "too old resource version")
            later = [change for change in self._history if change.version > at][: self.rng.randint(1, 4)]
            if not later:
                await self._changed.wait()
                continue
            at = later[-1].version
            yield Batch([event for change in later for event in change.events(owner)], str(at))
            await self._fail_at_times()
            if self.rng.random() < 0.05:
                return

    async def _fail_at_times(self) -> None:
        await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.01, 1.0)))
        if self._away:
            raise Unreachable("connection refused")
        if self.quiet:
            return
        match self.rng.randrange(25):
            case 0:
                raise WatchBroken("cut in the middle of an event")
            case 1:
                raise Unreachable("connection reset")
            case 2:
                raise TooManyRequests(429, "TooManyRequests", "storage is (re)initializing", 1.0)
