"""A controller on a real API server: everything that exists is worked on, changes are not missed, conflicts settle."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import msgspec

from fault_proxy import Fault, FaultProxy
from gpu_control_plane.kube import Applier, Cache, Client, Controller, Key, Requeue, Selection
from gpu_control_plane.kube.watch import ApiSource
from integration.kinds import ConfigMap, configmap
from waiting import until, until_async


@asynccontextmanager
async def working(*tasks: Awaitable[None]) -> AsyncIterator[None]:
    running = [asyncio.ensure_future(task) for task in tasks]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)


def watched(client: Client, namespace: str) -> Cache[ConfigMap]:
    selection = Selection(namespace, fields="metadata.name!=kube-root-ca.crt")
    return Cache(ConfigMap, ApiSource(client, ConfigMap, selection), metrics=client.metrics)


class Stamp(msgspec.Struct):
    data: dict[str, str]


async def test_everything_is_reconciled_once_and_then_nothing_is_written(client: Client, namespace: str) -> None:
    for number in range(30):
        await client.create(ConfigMap, configmap(f"item-{number}"), namespace)
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as counted:
        cache = watched(counted, namespace)
        hand = Applier(counted, "stamper")

        async def stamp(key: Key) -> None:
            item = cache.at(key)
            if item is not None:
                await hand.apply(ConfigMap, key.name, Stamp({"stamped": "yes"}), item, namespace=key.namespace)

        async with working(cache.run(), Controller("stamp", stamp, metrics=counted.metrics).watch(cache).run()):
            await until(lambda: sum(item.data.get("stamped") == "yes" for item in cache) == 30)
            # Each write comes back as an event and is reconciled again, which must not write.
            await until(lambda: _reconciles(counted, "done") >= 60)
            assert len(proxy.writes) == 30
            await client.patch(ConfigMap, "item-7", {"data": {"stamped": "no"}}, namespace=namespace)
            await until(lambda: len(proxy.writes) == 31)  # It is counted when it sets out, not when it has arrived.
            await until_async(lambda: _is_stamped(client, namespace))


async def _is_stamped(client: Client, namespace: str) -> bool:
    return (await client.get(ConfigMap, "item-7", namespace)).data["stamped"] == "yes"


def _reconciles(client: Client, result: str) -> float:
    labels = {"controller": "stamp", "result": result}
    return client.metrics.registry.get_sample_value("kube_reconciles_total", labels) or 0.0


async def test_a_conflict_storm_settles_with_every_increment_counted(client: Client, namespace: str) -> None:
    """Eight controllers raise one counter through guarded patches; a lost update would leave it short."""
    await client.create(ConfigMap, configmap("counter", value="0"), namespace)
    tasks: list[Awaitable[None]] = []
    left = dict.fromkeys(range(8), 10)
    for number in range(8):
        cache = watched(client, namespace)

        async def raise_it(_key: Key, number: int = number, cache: Cache[ConfigMap] = cache) -> Requeue | None:
            counter = cache.get("counter", namespace)
            if counter is None or not left[number]:
                return None
            await client.patch(
                ConfigMap,
                "counter",
                {"data": {"value": str(int(counter.data["value"]) + 1)}},
                namespace=namespace,
                resource_version=counter.metadata.resource_version,
            )
            left[number] -= 1
            return Requeue(after=0.01)

        tasks += [cache.run(), Controller(f"raiser-{number}", raise_it, metrics=client.metrics).watch(cache).run()]
    async with working(*tasks):
        await until(lambda: not any(left.values()), within=120)
    assert (await client.get(ConfigMap, "counter", namespace)).data == {"value": "80"}
    conflicts = [
        sample.value
        for metric in client.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "kube_reconciles_total" and sample.labels["result"] == "conflict"
    ]
    assert sum(conflicts) > 0


async def test_one_failing_object_does_not_hold_up_the_others(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, configmap("bad"), namespace)
    cache = watched(client, namespace)
    done: set[str] = set()
    tries = 0

    async def reconcile(key: Key) -> None:
        nonlocal tries
        if key.name == "bad":
            tries += 1
            raise ValueError("a bug in the reconcile")
        done.add(key.name)

    controller = Controller("picky", reconcile, workers=1, metrics=client.metrics).watch(cache)
    async with working(cache.run(), controller.run()):
        await until(lambda: tries >= 3)
        for number in range(10):
            await client.create(ConfigMap, configmap(f"good-{number}"), namespace)
        await until(lambda: len(done) == 10)


async def test_a_reconcile_that_hangs_is_ended_and_tried_again(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, configmap("slow"), namespace)
    cache = watched(client, namespace)
    tries = 0

    async def reconcile(_key: Key) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            await asyncio.Event().wait()

    controller = Controller("hanging", reconcile, time_limit=0.2, metrics=client.metrics).watch(cache)
    async with working(cache.run(), controller.run()):
        await until(lambda: tries == 2)


async def test_work_that_has_begun_is_finished_before_a_controller_stops(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, configmap("one"), namespace)
    cache = watched(client, namespace)
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def reconcile(_key: Key) -> None:
        begun.set()
        await may_end.wait()
        ended.set()

    async with working(cache.run()):
        controller = asyncio.ensure_future(Controller("steady", reconcile, metrics=client.metrics).watch(cache).run())
        await asyncio.wait_for(begun.wait(), 60)
        controller.cancel()
        await asyncio.sleep(0.1)
        assert not controller.done()
        may_end.set()
        await asyncio.wait((controller,), timeout=60)
        assert ended.is_set()
        assert controller.cancelled()


async def test_reconciling_goes_on_through_throttling_and_lost_answers(client: Client, namespace: str) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config, timeout=2) as faulty:
        cache = watched(faulty, namespace)
        hand = Applier(faulty, "stamper")

        async def stamp(key: Key) -> None:
            if (item := cache.at(key)) is not None:
                await hand.apply(ConfigMap, key.name, Stamp({"stamped": "yes"}), item, namespace=key.namespace)

        for number, fault in enumerate(
            (
                Fault(when=lambda r: r.is_write, status=429, retry_after=0, times=5),
                Fault(when=lambda r: r.is_write, lose_answer=True, times=3),
                Fault(when=lambda r: r.is_write, status=500, times=3),
                Fault(when=lambda r: r.is_write, delay=4, times=2),
            )
        ):
            proxy.plant(fault)
            for item in range(6):
                await client.create(ConfigMap, configmap(f"item-{number}-{item}"), namespace)
        async with working(cache.run(), Controller("stamp", stamp, metrics=faulty.metrics).watch(cache).run()):

            async def all_stamped() -> bool:
                items = await client.list(ConfigMap, Selection(namespace, fields="metadata.name!=kube-root-ca.crt"))
                return len(items) == 24 and all(item.data.get("stamped") == "yes" for item in items)

            await until_async(all_stamped)
        assert all(fault.spent for fault in proxy.faults)
