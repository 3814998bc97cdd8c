"""Two replicas as real processes: exactly one writes, whether one dies, hands over or wakes up late."""

import asyncio
import math
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from fault_proxy import Fault, FaultProxy, plain_kubeconfig
from gpu_control_plane.kube import Cache, Client, EventRecorder, Leadership, Selection, Timing
from gpu_control_plane.kube.errors import LeadershipLost
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.leader import Lease
from gpu_control_plane.kube.process_events import ProcessEvent
from gpu_control_plane.kube.times import micro_time, utc_now
from gpu_control_plane.kube.watch import ApiSource
from integration.kinds import ConfigMap, configmap
from waiting import until, until_async

ROOT = Path(__file__).parents[2]


class Race:
    """The replicas and the story of the counter they write to: (value, writer, when), as a watch saw it.

    Each replica has a proxy of its own, which shows what it asks for.
    """

    def __init__(self, client: Client, namespace: str, folder: Path, stack: AsyncExitStack) -> None:
        self._client = client
        self._namespace = namespace
        self._folder = folder
        self._stack = stack
        self.story: list[tuple[int, str, float]] = []
        self.holders: list[tuple[str | None, float]] = []
        """Who held the lease, one after the other, and since when."""
        self.replicas: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> FaultProxy:
        proxy = await self._stack.enter_async_context(FaultProxy.before(self._client.config))
        kubeconfig = self._folder / name
        kubeconfig.write_bytes(plain_kubeconfig(proxy.config.server))
        self.replicas[name] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "integration.kube.replica"),
            *(str(kubeconfig), self._namespace, name),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=asyncio.subprocess.DEVNULL,
        )
        return proxy

    async def start_candidate(self, name: str) -> None:
        """Start a replica and wait until it waits for the lease."""
        proxy = await self.start(name)
        await until(
            lambda: any(request.is_watch and "/leases" in request.path for request, _ in proxy.answers),
            saying=f"{name} is a candidate",
        )

    def signal(self, name: str, number: signal.Signals) -> None:
        self.replicas[name].send_signal(number)

    def writers_since(self, moment: float) -> set[str]:
        return {writer for _, writer, at in self.story if at >= moment}

    def note(self, _old: ConfigMap | None, new: ConfigMap | None) -> None:
        if new is not None and "writer" in new.data:
            self.story.append((int(new.data["value"]), new.data["writer"], time.monotonic()))

    def note_holder(self, _old: Lease | None, new: Lease | None) -> None:
        holder = new.spec.holder_identity if new is not None else None
        if not self.holders or self.holders[-1][0] != holder:
            self.holders.append((holder, time.monotonic()))

    async def leader_is(self, name: str) -> None:
        await until(lambda: self.story and self.story[-1][1] == name, saying=f"{name} leads")

    async def lease_is_with(self, name: str) -> None:
        await until(lambda: self.holders and self.holders[-1][0] == name, saying=f"the lease is with {name}")

    async def holder(self) -> str | None:
        return (await self._client.get(Lease, "replica", self._namespace)).spec.holder_identity


@pytest.fixture
async def race(client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[Race]:
    await client.create(ConfigMap, configmap("counter", value="0"), namespace)
    async with AsyncExitStack() as stack:
        race = Race(client, namespace, tmp_path, stack)
        counters = Cache(ConfigMap, ApiSource(client, ConfigMap, Selection(namespace, fields="metadata.name=counter")))
        counters.on_change(race.note)
        leases = Cache(Lease, ApiSource(client, Lease, Selection(namespace)))
        leases.on_change(race.note_holder)
        tasks = [asyncio.create_task(cache.run()) for cache in (counters, leases)]
        # What is written from now on is seen, all of it.
        await until(lambda: counters.is_synced and leases.is_synced)
        yield race
        for task in tasks:
            task.cancel()
        for replica in race.replicas.values():
            if replica.returncode is None:
                replica.send_signal(signal.SIGCONT)
                replica.kill()
            await replica.wait()
    # Guarded writes: every value follows the one before, so no two leaders ever built on the same state.
    values = [value for value, _, _ in race.story]
    assert values == list(range(1, len(values) + 1))


async def test_when_the_leader_is_killed_the_other_takes_over_after_the_lease(race: Race) -> None:
    await race.start("a")
    await race.leader_is("a")
    await race.start_candidate("b")
    race.signal("a", signal.SIGKILL)
    killed_at = time.monotonic()
    await race.leader_is("b")
    assert time.monotonic() - killed_at < 8
    await race.lease_is_with("b")
    assert [holder for holder, _ in race.holders] == ["a", "b"]


async def test_a_leader_that_is_asked_to_stop_hands_over_at_once(race: Race) -> None:
    await race.start("a")
    await race.leader_is("a")
    await race.start_candidate("b")
    race.signal("a", signal.SIGTERM)
    await race.leader_is("b")
    await race.lease_is_with("b")
    (first, _), (none, released_at), (second, taken_at) = race.holders
    assert (first, none, second) == ("a", "", "b")
    # The lease lasts 3 s: a hand-over before that was a release, not an expiry.
    assert taken_at - released_at < 2
    assert await race.replicas["a"].wait() == 0


async def test_a_leader_frozen_past_the_hand_over_writes_nothing_when_it_wakes_up(race: Race) -> None:
    await race.start("a")
    await race.leader_is("a")
    await race.start_candidate("b")
    race.signal("a", signal.SIGSTOP)
    await race.leader_is("b")
    taken_over_at = next(at for _, writer, at in race.story if writer == "b")
    race.signal("a", signal.SIGCONT)
    # Long enough for the woken process to do everything it had planned.
    count = len(race.story)
    await until(lambda: len(race.story) > count + 60)
    assert race.writers_since(taken_over_at) == {"b"}
    assert await race.holder() == "b"
    assert race.replicas["a"].returncode is None
    # It has become a candidate again, and leads when the other goes.
    race.signal("b", signal.SIGKILL)
    await race.leader_is("a")


async def test_a_lease_taken_by_force_stops_the_leader(race: Race, client: Client, namespace: str) -> None:
    await race.start("a")
    await race.leader_is("a")
    usurper = {"spec": {"holderIdentity": "c", "leaseDurationSeconds": 3600}}
    await client.patch(Lease, "replica", usurper, namespace=namespace)
    await asyncio.sleep(3)  # longer than any renewal or fence
    count = len(race.story)
    await asyncio.sleep(1)
    assert len(race.story) == count


async def test_the_fence_closes_before_others_may_take_over(client: Client, namespace: str) -> None:
    clock = 100.0
    leadership = Leadership(
        client, name="one", namespace=namespace, identity="me", timing=Timing(), clock=lambda: clock
    )
    leading = asyncio.Event()
    end = asyncio.Event()

    async def lead() -> None:
        leading.set()
        await end.wait()

    task = asyncio.create_task(leadership.run(lead))
    await asyncio.wait_for(leading.wait(), 60)
    leadership.check()
    clock += Timing().deadline
    with pytest.raises(LeadershipLost):
        leadership.check()
    assert Timing().deadline < Timing().duration
    end.set()
    await asyncio.wait_for(task, 60)


async def test_work_that_outlives_its_lease_is_noticed(client: Client, namespace: str) -> None:
    clock = 100.0
    leadership = Leadership(
        client, name="stuck", namespace=namespace, identity="me", timing=Timing(renewal=0.2), clock=lambda: clock
    )
    leading, cancelled, end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def lead() -> None:
        leading.set()
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                cancelled.set()

    campaign = asyncio.create_task(leadership.run(lead))
    await asyncio.wait_for(leading.wait(), 60)
    usurper = {"spec": {"holderIdentity": "c", "leaseDurationSeconds": 3600}}
    await client.patch(Lease, "stuck", usurper, namespace=namespace)
    await asyncio.wait_for(cancelled.wait(), 60)
    assert leadership.problem() is None
    clock += 75
    assert "and what it allowed has not ended" in (leadership.problem() or "")
    end.set()
    await until(lambda: leadership.problem() is None)
    campaign.cancel()


async def test_nothing_is_sent_after_leadership_ended_while_the_server_asks_to_wait(
    client: Client, namespace: str
) -> None:
    timing = Timing(duration=3.0, deadline=2.0, renewal=0.3, retry=0.1)
    leadership = Leadership(client, name="refused", namespace=namespace, identity="me", timing=timing)
    leading = asyncio.Event()

    async def lead() -> None:
        leading.set()
        await asyncio.Event().wait()

    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as refused:
        proxy.plant(Fault(times=math.inf, status=429, retry_after=1, reason="TooManyRequests"))
        campaign = asyncio.create_task(leadership.run(lead))
        await asyncio.wait_for(leading.wait(), 60)
        fenced = refused.fenced(leadership.check)
        writes = [asyncio.create_task(fenced.create(ConfigMap, configmap(f"{n}"), namespace)) for n in range(50)]
        await until(lambda: len(proxy.writes) >= len(writes), saying="every write was refused once")
        usurper = {"spec": {"holderIdentity": "c", "leaseDurationSeconds": 3600}}
        await client.patch(Lease, "refused", usurper, namespace=namespace)
        await until(lambda: not leadership.leading, saying="leadership ended")
        sent = len(proxy.writes)
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        campaign.cancel()
        assert {type(outcome) for outcome in outcomes} == {LeadershipLost}
        assert len(proxy.writes) == sent


async def test_a_process_stopped_in_the_moment_of_winning_releases_the_lease(client: Client, namespace: str) -> None:
    led = asyncio.Event()

    async def lead() -> None:
        led.set()

    leadership = Leadership(client, name="brief", namespace=namespace, identity="me")
    task = asyncio.create_task(leadership.run(lead))
    while not leadership.leading:  # noqa: ASYNC110 - every turn of the loop: it must not get any further
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert not led.is_set()
    assert not (await client.get(Lease, "brief", namespace)).spec.holder_identity


async def _reasons(client: Client, namespace: str) -> list[str]:
    return [event.reason for event in await client.list(Event, Selection(namespace)) if event.regarding is not None]


async def test_the_next_leader_tells_that_nobody_led(client: Client, namespace: str) -> None:
    long_ago = micro_time(utc_now() - timedelta(minutes=12))
    spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": long_ago}
    await client.create(Lease, {"metadata": {"name": "left"}, "spec": spec}, namespace)
    recorder = EventRecorder(client, "test", "me")
    leadership = Leadership(client, name="left", namespace=namespace, identity="me", events=recorder)
    writing = asyncio.create_task(recorder.run())
    await asyncio.wait_for(leadership.run(lambda: asyncio.sleep(0)), 60)
    await asyncio.wait_for(leadership.run(lambda: asyncio.sleep(0)), 60)  # it has just been renewed

    async def told() -> bool:
        return await _reasons(client, namespace) == [ProcessEvent.LEADER_ABSENT]

    await until_async(told, saying="one Event")
    writing.cancel()


async def test_a_replica_that_cannot_take_the_lease_says_so_once(client: Client, namespace: str) -> None:
    recorder = EventRecorder(client, "test", "me")
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as refused:
        proxy.plant(
            Fault(when=lambda request: request.method == "POST", times=math.inf, status=403, reason="Forbidden")
        )
        timing = Timing(duration=3.0, deadline=0.5, renewal=0.3, retry=0.05)
        leadership = Leadership(
            refused, name="denied", namespace=namespace, identity="me", timing=timing, events=recorder
        )
        writing = asyncio.create_task(recorder.run())
        campaign = asyncio.create_task(leadership.run(lambda: asyncio.sleep(0)))

        async def told() -> bool:
            return await _reasons(client, namespace) == [ProcessEvent.LEASE_NOT_TAKEN]

        await until_async(told, saying="one Event")
        tried = len(proxy.writes)
        await until(lambda: len(proxy.writes) > tried + 10, saying="more attempts")
        assert await told()
        for task in (campaign, writing):
            task.cancel()
            await asyncio.wait((task,))
    (event,) = await client.list(Event, Selection(namespace))
    assert event.series is None
