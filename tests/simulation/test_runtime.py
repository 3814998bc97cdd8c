"""The queue, the cache and the controller loop through thousands of interleavings of everything that can go wrong."""

import asyncio

import pytest

from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.controller import Controller, Requeue
from gpu_control_plane.kube.errors import Conflict, ServerError
from gpu_control_plane.kube.metrics import Metrics
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.queue import WorkQueue
from gpu_control_plane.kube.signal import Signal
from simulation.api_server_model import ApiServerModel, Selected, Thing
from simulation.loop import SimulatedLoop, StepsExceeded, WaitsForEver, explore

METRICS = Metrics()


class Mirror:
    """A controller's effect on the outside: it copies each thing's value, slowly and with failures."""

    def __init__(self, server: ApiServerModel, cache: Cache[Thing], *others: Cache[Thing]) -> None:
        self._server = server
        self._cache = cache
        self._learning = (cache, *others)
        self._busy: set[Key] = set()
        self.copies: dict[Key, int] = {}
        self.faults: list[str] = []
        """Found inside of reconciles, where the controller would take an AssertionError for one object's trouble."""

    async def reconcile(self, key: Key) -> Requeue | None:
        if key in self._busy:
            self.faults.append(f"two workers on {key} at once")
        self._busy.add(key)
        try:
            return await self._copy(key)
        finally:
            self._busy.discard(key)

    async def _copy(self, key: Key) -> Requeue | None:
        rng = self._server.rng
        thing = self._cache.at(key)
        await asyncio.sleep(rng.choice((0.0, 0.01, 2.0)))
        if not self._server.quiet:
            match rng.randrange(12):
                case 0:
                    raise Conflict(409, "Conflict", "the object has been modified")
                case 1:
                    raise ServerError(500, "InternalError", "etcd is tired")
                case 2:
                    return Requeue(after=rng.choice((0.0, 5.0)))
            if rng.random() < 0.3:
                await self._write(key)
                thing = self._cache.at(key)
        if thing is None:
            self.copies.pop(key, None)
        else:
            self.copies[key] = thing.value
        return None

    async def _write(self, key: Key) -> None:
        """A write of our own. Its answer takes a while, and must be in the cache from then on."""
        rng = self._server.rng
        if key in self._server.things and rng.random() < 0.4:
            uid = self._server.delete(key)
            await asyncio.sleep(rng.choice((0.0, 0.01, 3.0)))
            for cache in self._learning:
                cache.learn_deletion(key, uid)
                held = cache.at(key)
                if held is not None and held.metadata.uid == uid:
                    self.faults.append(f"{key} is shown although it was deleted")
            return
        written = self._server.write(key, rng.randrange(1000, 2000))
        await asyncio.sleep(rng.choice((0.0, 0.01, 3.0)))
        for cache in self._learning:
            cache.learn(written)
        if self._cache.at(key) != written and not self._server.changed_since(written):
            self.faults.append(f"{key} is not shown as it was written")


class ChangeChecker:
    """Checks that handlers get every change: each starts from where the last one ended, and, unless things
    may leave the selection and come back, no version is older than one that was shown before."""

    def __init__(self, *, selected: bool = False) -> None:
        self.known: dict[Key, Thing] = {}
        self._selected = selected
        self._latest: dict[str, int] = {}

    def note(self, old: Thing | None, new: Thing | None) -> None:
        key = (old or new).key  # type: ignore[union-attr]
        assert self.known.get(key) == old, f"a change of {key} is missing"
        if new is None:
            del self.known[key]
            return
        self.known[key] = new
        uid, version = new.metadata.uid, int(new.metadata.resource_version)
        assert self._selected or version > self._latest.get(uid, 0), f"{key} went back in time"
        self._latest[uid] = version


async def _settled(server: ApiServerModel, cache: Cache[Thing], mirror: Mirror) -> None:
    """Long after the last change everything must agree, whatever happened on the way."""
    while not server.quiet:
        await asyncio.sleep(1.0)
    await asyncio.sleep(300.0)
    assert not mirror.faults
    assert {thing.key: thing for thing in cache} == server.things
    assert mirror.copies == {key: thing.value for key, thing in server.things.items()}
    for owner in "ab":
        expected = {key for key, thing in server.things.items() if thing.owner == owner}
        assert {thing.key for thing in cache.by_index("owner", owner)} == expected


def _cache(server: ApiServerModel) -> Cache[Thing]:
    cache = Cache(Thing, server, selects=lambda _new: True, metrics=METRICS, rng=server.rng)
    cache.index("owner", lambda thing: (thing.owner,))
    return cache


async def _run(loop: SimulatedLoop) -> None:
    server = ApiServerModel(loop)
    cache = _cache(server)
    selected = Cache(Thing, Selected(server, "a"), metrics=METRICS, rng=server.rng)
    checker, of_selected = ChangeChecker(), ChangeChecker(selected=True)
    cache.on_change(checker.note)
    selected.on_change(of_selected.note)
    mirror = Mirror(server, cache, selected)
    controller = Controller("mirror", mirror.reconcile, workers=3, metrics=METRICS, rng=loop.rng).watch(cache)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run()) for run in (cache.run, selected.run, controller.run)]
        await server.change_at_random(changes=loop.rng.randint(1, 40))
        await _settled(server, cache, mirror)
        for task in tasks:
            task.cancel()
    assert checker.known == server.things
    assert of_selected.known == {key: thing for key, thing in server.things.items() if thing.owner == "a"}
    assert {thing.key: thing for thing in selected} == of_selected.known
    assert (cache.expected_deletions, selected.expected_deletions) == (0, 0)


async def _stop_and_start(loop: SimulatedLoop) -> None:
    """A controller that loses leadership again and again: work that began ends, and nothing is forgotten."""
    server = ApiServerModel(loop)
    cache = _cache(server)
    mirror = Mirror(server, cache)
    controller = Controller("mirror", mirror.reconcile, workers=2, metrics=METRICS, rng=loop.rng).watch(cache)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(cache.run())
        changing = group.create_task(server.change_at_random(changes=25))
        while not changing.done():
            leading = asyncio.ensure_future(controller.run())
            await asyncio.sleep(loop.rng.uniform(0.0, 8.0))
            leading.cancel()
            await asyncio.wait((leading,))
            assert not mirror._busy, "a stopped controller left work running"
        leading = asyncio.ensure_future(controller.run())
        await asyncio.sleep(300.0)
        for key in set(mirror.copies) - set(server.things):
            # Deleted while no controller ran: such leftovers are found by an index, not by an event.
            del mirror.copies[key]
        await _settled(server, cache, mirror)
        leading.cancel()
        await asyncio.wait((leading,))
        watching.cancel()


async def _restored(loop: SimulatedLoop) -> None:
    """The server is restored from a backup, and has other changes since: caches and controllers end with its state."""
    server = ApiServerModel(loop)
    cache = _cache(server)
    selected = Cache(Thing, Selected(server, "a"), metrics=METRICS, rng=server.rng)
    mirror = Mirror(server, cache, selected)
    controller = Controller("mirror", mirror.reconcile, workers=3, metrics=METRICS, rng=loop.rng).watch(cache)
    async with asyncio.TaskGroup() as group:
        watching = [group.create_task(run()) for run in (cache.run, selected.run)]
        await server.change_at_random(changes=loop.rng.randint(0, 20))
        backup, version = dict(server.things), server.version
        await server.change_at_random(changes=loop.rng.randint(0, 20))
        await server.restore(backup, version)
        await server.change_at_random(changes=loop.rng.randint(0, 20))
        await asyncio.sleep(300.0)
        assert {thing.key: thing for thing in cache} == server.things
        assert {thing.key for thing in selected} == {key for key, held in server.things.items() if held.owner == "a"}
        working = group.create_task(controller.run())
        await _settled(server, cache, mirror)
        for task in (*watching, working):
            task.cancel()


async def _signalled(loop: SimulatedLoop) -> None:
    """A controller that is woken by a signal alone, and stopped and started: what is fired while it runs is worked on
    after it was fired."""
    rng = loop.rng
    signal = Signal("signal", interval=rng.choice((0.0, 0.0, 0.5, 3.0)))
    fired: dict[Key, int] = {}
    worked: dict[Key, int] = {}

    async def reconcile(key: Key) -> None:
        seen = fired[key]
        await asyncio.sleep(rng.choice((0.0, 0.01, 2.0)))
        if rng.random() < 0.2:
            raise ServerError(500, "InternalError", "etcd is tired")
        worked[key] = seen

    controller = Controller("listener", reconcile, workers=2, metrics=METRICS, rng=rng).watch(signal)
    for _ in range(3):
        fired.clear()
        worked.clear()
        running = asyncio.ensure_future(controller.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for moment in range(rng.randint(1, 20)):
            keys = [Key(name) for name in "abc" if rng.random() < 0.5]
            fired.update(dict.fromkeys(keys or (signal.key,), moment))
            signal.fire(*keys)
            await asyncio.sleep(rng.choice((0.0, 0.001, 0.4, 2.0)))
        await asyncio.sleep(600.0)
        assert worked == fired, "what was fired last was not worked on"
        running.cancel()
        await asyncio.wait((running,))


async def _queue_only(loop: SimulatedLoop, queue: WorkQueue[int]) -> None:
    """Every add is followed by a get that starts after it; no key is with two workers."""
    rng = loop.rng
    wanted: dict[int, int] = {}
    served: dict[int, int] = {}
    busy: set[int] = set()

    async def produce() -> None:
        for moment in range(1, 40):
            key = rng.randrange(4)
            wanted[key] = moment
            rng.choice((queue.add, lambda key: queue.add_after(key, rng.uniform(0, 2))))(key)
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.5)))

    async def consume() -> None:
        while True:
            key = await queue.get()
            assert key not in busy, f"{key} is with two workers"
            busy.add(key)
            seen = wanted[key]
            await asyncio.sleep(rng.choice((0.0, 0.2, 1.5)))
            if rng.random() < 0.2:
                queue.retry(key)
            else:
                served[key] = seen
                queue.forget(key)
            busy.discard(key)
            queue.done(key)

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(consume()) for _ in range(3)]
        quitter = group.create_task(consume())
        await asyncio.sleep(0)
        if not busy:
            quitter.cancel()
        await produce()
        await asyncio.sleep(600.0)
        assert served == wanted, "an add was forgotten"
        for task in (*workers, quitter):
            task.cancel()


def test_every_interleaving_converges(seeds: range) -> None:
    explore(_run, seeds)


def test_leadership_may_come_and_go_at_any_moment(seeds: range) -> None:
    explore(_stop_and_start, seeds)


def test_a_restored_server_is_believed(seeds: range) -> None:
    explore(_restored, seeds)


def test_what_a_signal_fires_is_worked_on(seeds: range) -> None:
    explore(_signalled, seeds)


def test_the_queue_never_forgets_and_never_doubles(seeds: range) -> None:
    explore(lambda loop: _queue_only(loop, WorkQueue(rng=loop.rng)), seeds)


class ForgetfulQueue(WorkQueue[int]):
    """A queue with the classic fault: what is added while it is being worked on is lost."""

    def add(self, key: int) -> None:
        if key not in self._working:
            super().add(key)


def test_a_planted_fault_is_found_and_replays_from_its_seed() -> None:
    def scenario(loop: SimulatedLoop) -> "asyncio.Future[None]":
        return _queue_only(loop, ForgetfulQueue(rng=loop.rng))  # type: ignore[return-value]

    with pytest.raises(BaseExceptionGroup) as found:
        explore(scenario, range(200))
    note = found.value.__notes__[-1]
    seed = int(note.split("seed ")[1].split(";")[0])
    with pytest.raises(BaseExceptionGroup) as again:
        explore(scenario, range(seed, seed + 1))
    assert str(again.value.exceptions[0]) == str(found.value.exceptions[0])
    assert f"pytest tests/simulation --seed {seed}" in note


def test_the_same_seed_gives_the_same_run() -> None:
    def trace(seed: int) -> list[tuple[float, str]]:
        steps: list[tuple[float, str]] = []

        async def scenario(loop: SimulatedLoop) -> None:
            server = ApiServerModel(loop)
            cache = _cache(server)
            cache.on_change(lambda old, new: steps.append((loop.time(), f"{old} -> {new}")))
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(cache.run())
                await server.change_at_random(changes=30)
                await asyncio.sleep(100.0)
                watching.cancel()

        loop = SimulatedLoop(seed)
        loop.run(scenario(loop))
        return steps

    assert trace(7) == trace(7)
    assert trace(7) != trace(8)


def test_waiting_for_ever_and_spinning_are_distinguished() -> None:
    async def wait(_loop: SimulatedLoop) -> None:
        await asyncio.Event().wait()

    async def spin(_loop: SimulatedLoop) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(WaitsForEver):
        explore(wait, range(1))
    with pytest.raises(StepsExceeded):
        explore(spin, range(1), step_limit=1000)
