"""Two replicas as real processes: exactly one writes, whoever dies, hands over or wakes up late."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpu_control_plane.kube import Cache, Client, Leadership, Selection, Timing
from gpu_control_plane.kube.errors import LeadershipLost
from gpu_control_plane.kube.leader import Lease
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.local import Cluster
from integration.kinds import ConfigMap, configmap
from waiting import until

ROOT = Path(__file__).parents[2]


class Race:
    """The replicas and the story of the counter they write to: (value, writer, when), as a watch saw it."""

    def __init__(self, api_server: Cluster, client: Client, namespace: str) -> None:
        self._kubeconfig = api_server.kubeconfig
        self._client = client
        self._namespace = namespace
        self.story: list[tuple[int, str, float]] = []
        self.replicas: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> None:
        self.replicas[name] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "integration.kube.replica"),
            *(str(self._kubeconfig), self._namespace, name),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=asyncio.subprocess.DEVNULL,
        )

    def signal(self, name: str, number: signal.Signals) -> None:
        self.replicas[name].send_signal(number)

    def writers_since(self, moment: float) -> set[str]:
        return {writer for _, writer, at in self.story if at >= moment}

    def note(self, _old: ConfigMap | None, new: ConfigMap | None) -> None:
        if new is not None and "writer" in new.data:
            self.story.append((int(new.data["value"]), new.data["writer"], time.monotonic()))

    async def leader_is(self, name: str, *, within: float = 15.0) -> None:
        await until(lambda: self.story and self.story[-1][1] == name, within=within, saying=f"{name} leads")

    async def holder(self) -> str | None:
        return (await self._client.get(Lease, "replica", self._namespace)).spec.holder_identity


@pytest.fixture
async def race(api_server: Cluster, client: Client, namespace: str) -> AsyncIterator[Race]:
    await client.create(ConfigMap, configmap("counter", value="0"), namespace)
    race = Race(api_server, client, namespace)
    selection = Selection(namespace, fields="metadata.name=counter")
    cache = Cache(ConfigMap, ApiSource(client, ConfigMap, selection))
    cache.on_change(race.note)
    task = asyncio.create_task(cache.run())
    yield race
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
    await race.start("b")
    race.signal("a", signal.SIGKILL)
    killed_at = time.monotonic()
    await race.leader_is("b")
    assert time.monotonic() - killed_at < 8


async def test_a_leader_that_is_asked_to_stop_hands_over_at_once(race: Race) -> None:
    await race.start("a")
    await race.leader_is("a")
    await race.start("b")
    await asyncio.sleep(1.5)  # b has to be a candidate already, which nothing shows from outside
    stopped_at = time.monotonic()
    race.signal("a", signal.SIGTERM)
    await race.leader_is("b")
    # The lease lasts 3 s: a hand-over before that was a release, not an expiry.
    assert time.monotonic() - stopped_at < 2
    assert await race.replicas["a"].wait() == 0


async def test_a_leader_frozen_past_the_hand_over_writes_nothing_when_it_wakes_up(race: Race) -> None:
    await race.start("a")
    await race.leader_is("a")
    await race.start("b")
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
    await asyncio.wait_for(leading.wait(), 10)
    leadership.check()
    clock += Timing().deadline
    with pytest.raises(LeadershipLost):
        leadership.check()
    assert Timing().deadline < Timing().duration
    end.set()
    await asyncio.wait_for(task, 5)
