"""What the kubelet knows follows what is announced, whatever happens to sockets, kubelets and agents."""

import asyncio
import socket
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from gpu_control_plane.agent.kubelet import resource_plugin as keeping
from gpu_control_plane.agent.kubelet.interface import Device, PluginError, ResourceState, TooManyDevices
from gpu_control_plane.agent.kubelet.metrics import PluginMetrics
from gpu_control_plane.agent.kubelet.plugins import DevicePlugins
from gpu_control_plane.kube.backoff import Backoff
from unit.agent.kubelet.kubelet import QUICK, RESOURCE, FakeAllocator, FakeKubelet, Plugin, devices, serving, sockets
from waiting import until

HEALTHY, ILL = "Healthy", "Unhealthy"


def plugins(folder: Path) -> DevicePlugins:
    return DevicePlugins(FakeAllocator(), folder, backoff=QUICK)


async def test_cards_join_fall_ill_and_leave_through_the_same_stream(folder: Path, kubelet: FakeKubelet) -> None:
    await kubelet.start()
    agent = plugins(folder)
    async with serving(agent):
        for list_ in (devices("a"), devices("a", "b"), devices("b", unhealthy=("a",)), devices("b")):
            await agent.advertise(RESOURCE, list_)
            await until(lambda: agent.states[RESOURCE].list_sent)
        await until(lambda: kubelet.known() == {"b": HEALTHY})
    assert kubelet.history[RESOURCE] == [
        {"a": HEALTHY}, {"a": HEALTHY, "b": HEALTHY}, {"a": ILL, "b": HEALTHY}, {"b": HEALTHY}
    ]  # fmt: skip
    assert len(kubelet.registered) == 1


async def test_an_equal_list_is_no_news(folder: Path, kubelet: FakeKubelet) -> None:
    await kubelet.start()
    news: list[ResourceState] = []
    agent = DevicePlugins(FakeAllocator(), folder, on_change=news.append)
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a", "b"))
        await until(lambda: kubelet.known() and news[-1].list_sent)
        before = len(news)
        await agent.advertise(RESOURCE, devices("b", "a"))
        assert len(news) == before
        await agent.advertise(RESOURCE, devices("c"))
        await until(lambda: kubelet.known() == {"c": HEALTHY})
    assert len(kubelet.history[RESOURCE]) == 2


async def test_resources_have_sockets_of_their_own(folder: Path, kubelet: FakeKubelet) -> None:
    await kubelet.start()
    agent = plugins(folder)
    await agent.advertise("gpu.deckhouse.io/one", devices("a"))
    async with serving(agent):
        await agent.advertise("gpu.deckhouse.io/two", [Device("b", True, 1)])
        await until(lambda: kubelet.known("gpu.deckhouse.io/one") and kubelet.known("gpu.deckhouse.io/two"))
        endpoints = {request.resource_name: request.endpoint for request in kubelet.registered}
        assert len(set(endpoints.values())) == 2
        assert sockets(folder) == sorted(endpoints.values())
        assert kubelet.known("gpu.deckhouse.io/one") == {"a": HEALTHY}
        assert kubelet.known("gpu.deckhouse.io/two") == {"b": HEALTHY}
    assert sockets(folder) == []


async def test_a_withdrawn_resource_leaves_with_an_empty_list(folder: Path, kubelet: FakeKubelet) -> None:
    await kubelet.start()
    agent = plugins(folder)
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: agent.states[RESOURCE].list_sent)
        await agent.withdraw(RESOURCE)
        assert RESOURCE not in agent.states
        await until(lambda: not kubelet.listening)
        assert kubelet.known() == {}
        assert sockets(folder) == []


async def test_a_withdrawn_resource_can_come_back(folder: Path, kubelet: FakeKubelet) -> None:
    await kubelet.start()
    agent = plugins(folder)
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: agent.states[RESOURCE].list_sent)
        await agent.withdraw(RESOURCE)
        await agent.advertise(RESOURCE, devices("b"))
        await until(lambda: kubelet.known() == {"b": HEALTHY})


async def test_a_list_is_sent_again_on_one_resource_although_nothing_has_changed(
    folder: Path, kubelet: FakeKubelet
) -> None:
    await kubelet.start()
    agent = plugins(folder)
    async with serving(agent):
        await agent.advertise("gpu.deckhouse.io/one", devices("a"))
        await agent.advertise("gpu.deckhouse.io/two", devices("b"))
        await until(lambda: all(state.list_sent for state in agent.states.values()))
        agent.send_again()
        await until(lambda: sum(map(len, kubelet.history.values())) == 3)
        assert all(state.list_sent for state in agent.states.values())
    assert sorted(map(len, kubelet.history.values())) == [1, 2]


async def test_at_shutdown_the_last_list_stands(folder: Path, kubelet: FakeKubelet) -> None:
    await kubelet.start()
    agent = plugins(folder)
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: kubelet.known() == {"a": HEALTHY})
    await until(lambda: not kubelet.listening)
    assert kubelet.history[RESOURCE] == [{"a": HEALTHY}], (
        "an empty list would remove the card from the kubelet's checkpoint"
    )


async def test_an_agent_that_starts_first_waits_for_the_kubelet(folder: Path, kubelet: FakeKubelet) -> None:
    agent = plugins(folder)
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: sockets(folder))
        kubelet.clean()
        await until(lambda: sockets(folder))
        assert not agent.states[RESOURCE].registered
        await kubelet.start(clean=False)
        await until(lambda: kubelet.known() == {"a": HEALTHY})


async def test_a_new_kubelet_need_not_wait_for_the_failures_of_the_old_one(folder: Path, kubelet: FakeKubelet) -> None:
    kubelet.refusals.append("not now")
    await kubelet.start()
    agent = DevicePlugins(FakeAllocator(), folder, backoff=Backoff(first=60))
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: not kubelet.refusals)
        await kubelet.kill()
        await kubelet.start(clean=False)
        await until(lambda: kubelet.known() == {"a": HEALTHY})


async def test_a_kubelet_that_listens_is_left_alone(
    folder: Path, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kubelet.start()
    agent = plugins(folder)
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: agent.states[RESOURCE].list_sent)
        monkeypatch.setattr(keeping, "STREAM_OPEN_SECONDS", 0.02)
        for number in range(5):
            (folder / f"foreign-{number}.sock").touch()
            await asyncio.sleep(0.03)
    assert len(kubelet.registered) == 1


@pytest.mark.parametrize("orderly", [True, False], ids=["stopped", "killed"])
async def test_a_kubelet_that_restarts_knows_everything_again(
    folder: Path, kubelet: FakeKubelet, *, orderly: bool
) -> None:
    await kubelet.start()
    agent = plugins(folder)
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: kubelet.known() == {"a": HEALTHY})
        await kubelet.kill()
        if not orderly:
            _leave_dead_socket(folder / "kubelet.sock")
        await until(lambda: not agent.states[RESOURCE].streams)
        await agent.advertise(RESOURCE, devices("b"))
        await kubelet.start()
        await until(lambda: kubelet.known() == {"b": HEALTHY})


async def test_a_socket_that_was_deleted_is_made_anew(folder: Path, kubelet: FakeKubelet) -> None:
    await kubelet.start()
    agent = plugins(folder)
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: agent.states[RESOURCE].list_sent)
        (before,) = sockets(folder)
        (folder / before).unlink()
        await until(lambda: agent.states[RESOURCE].list_sent and sockets(folder) not in ([], [before]))
        await agent.advertise(RESOURCE, devices("b"))
        await until(lambda: kubelet.known() == {"b": HEALTHY})


async def test_a_stream_that_the_kubelet_drops_is_opened_again(folder: Path, kubelet: FakeKubelet) -> None:
    """Up to 1.36 the end of a predecessor takes its successor's connection with it."""
    await kubelet.start()
    agent = plugins(folder)
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a"))
        for _ in range(3):
            await until(lambda: kubelet.history[RESOURCE] and RESOURCE in kubelet.plugins)
            kubelet.history.clear()
            await kubelet.hang_up()
        await until(lambda: kubelet.known() == {"a": HEALTHY})
        await until(lambda: agent.states[RESOURCE].list_sent)


@pytest.mark.parametrize("hasty", [False, True])
async def test_a_kubelet_that_drops_every_stream_is_not_pestered(
    folder: Path, kubelet: FakeKubelet, *, hasty: bool
) -> None:
    kubelet.drops, kubelet.hasty = True, hasty
    await kubelet.start()
    agent = DevicePlugins(FakeAllocator(), folder, backoff=Backoff(first=0.1))
    loop = asyncio.get_running_loop()
    async with serving(agent):
        begin = loop.time()
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: len(kubelet.registered) == 4)
        assert loop.time() - begin > 0.05 + 0.1 + 0.2
        kubelet.drops = kubelet.hasty = False
        await until(lambda: agent.states[RESOURCE].list_sent)


async def test_a_kubelet_that_accepts_but_never_listens_is_asked_again(
    folder: Path, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "STREAM_OPEN_SECONDS", 0.05)
    kubelet.listens = False
    await kubelet.start()
    agent = plugins(folder)
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: kubelet.registered)
        kubelet.listens = True
        await until(lambda: kubelet.known() == {"a": HEALTHY})


async def test_a_new_agent_takes_over_while_the_old_one_leaves(folder: Path, kubelet: FakeKubelet) -> None:
    await kubelet.start()
    old, new = plugins(folder), plugins(folder)
    async with serving(new):
        async with serving(old):
            await old.advertise(RESOURCE, devices("a"))
            await until(lambda: old.states[RESOURCE].list_sent)
            await new.advertise(RESOURCE, devices("a", "b"))
            await until(lambda: kubelet.known() == {"a": HEALTHY, "b": HEALTHY})
            assert len(sockets(folder)) == 2
        kubelet.history.clear()
        await until(lambda: kubelet.known() == {"a": HEALTHY, "b": HEALTHY})
        await until(lambda: new.states[RESOURCE].list_sent)


async def test_sockets_of_dead_agents_are_removed_and_those_of_living_ones_kept(folder: Path) -> None:
    _leave_dead_socket(folder / "gpu-agent-dead.sock")
    _leave_dead_socket(folder / "nvidia-gpu.sock")
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(folder / "gpu-agent-alive.sock"))
        alive.listen()
        async with serving(plugins(folder)):
            await until(lambda: sockets(folder) == ["gpu-agent-alive.sock"])
    assert (folder / "nvidia-gpu.sock").exists()


async def test_a_refused_registration_is_tried_again(folder: Path, kubelet: FakeKubelet) -> None:
    kubelet.refusals.extend(("already connected", "already connected"))
    await kubelet.start()
    registry = CollectorRegistry()
    agent = DevicePlugins(FakeAllocator(), folder, backoff=QUICK, metrics=PluginMetrics(registry))
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: kubelet.known() == {"a": HEALTHY})

    def count(result: str) -> float | None:
        labels = {"resource": RESOURCE, "result": result}
        return registry.get_sample_value("gpu_agent_plugin_registrations_total", labels)

    assert (count("failed"), count("done")) == (2, 1)


async def test_a_slow_kubelet_learns_the_newest_list(folder: Path, kubelet: FakeKubelet) -> None:
    kubelet.answering.clear()
    await kubelet.start()
    agent = plugins(folder)
    async with serving(agent):
        for name in ("a", "b", "c"):
            await agent.advertise(RESOURCE, devices(name))
            await until(lambda: sockets(folder))
        kubelet.answering.set()
        await until(lambda: kubelet.known() == {"c": HEALTHY})
    assert kubelet.history[RESOURCE] == [{"c": HEALTHY}]


async def test_a_resource_can_be_withdrawn_while_the_kubelet_hangs(folder: Path, kubelet: FakeKubelet) -> None:
    kubelet.answering.clear()
    await kubelet.start()
    agent = plugins(folder)
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: sockets(folder))
        async with asyncio.timeout(60):
            await agent.withdraw(RESOURCE)
        assert sockets(folder) == []


async def test_a_slow_stream_gets_the_newest_list_and_delays_no_other(folder: Path, kubelet: FakeKubelet) -> None:
    await kubelet.start()
    agent = plugins(folder)
    async with serving(agent):
        await agent.advertise(RESOURCE, [])
        await until(lambda: agent.states[RESOURCE].list_sent)
        slow = Plugin(folder / sockets(folder)[0], eager=False)
        lists = slow.listen()
        received = [len((await anext(lists)).devices)]
        for count in range(5000, 5010):
            await agent.advertise(RESOURCE, [Device(f"replica-{number}", True) for number in range(count)])
            await until(lambda: len(kubelet.known() or ()) == len(agent.states[RESOURCE].devices))
        assert not agent.states[RESOURCE].list_sent
        while received[-1] != 5009:
            received.append(len((await anext(lists)).devices))
        assert len(received) < 6
        await slow.channel.close()
        await until(lambda: agent.states[RESOURCE].streams == 1)


async def test_a_list_the_kubelet_could_not_read_is_refused_and_the_former_one_stands(
    folder: Path, kubelet: FakeKubelet
) -> None:
    await kubelet.start()
    agent = plugins(folder)
    thousands = [Device(f"GPU-00000000-0000-0000-0000-000000000000::{number}", True, 0) for number in range(50_000)]
    async with serving(agent):
        await agent.advertise(RESOURCE, thousands)
        await until(lambda: len(kubelet.known() or ()) == 50_000)
        with pytest.raises(TooManyDevices, match=r"100000 devices of gpu\.deckhouse\.io/training .* fewer replicas"):
            await agent.advertise(RESOURCE, [*thousands, *(Device(f"{d.id}-more", True, 0) for d in thousands)])
        await until(lambda: agent.states[RESOURCE].list_sent)
        assert len(agent.states[RESOURCE].devices) == 50_000
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: kubelet.known() == {"a": HEALTHY})


async def test_two_devices_with_one_id_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="the same id"):
        await plugins(folder).advertise(RESOURCE, devices("a", "a"))


async def test_a_folder_with_a_path_too_long_for_sockets_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="shorter path"):
        await plugins(folder / ("x" * 60)).advertise(RESOURCE, devices("a"))


async def test_the_longest_resource_name_fits_into_the_kubelets_folder() -> None:
    await DevicePlugins(FakeAllocator()).advertise(f"{'d' * 253}/{'n' * 63}", devices("a"))


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_folder_that_goes_away_ends_the_agent_with_a_sentence(folder: Path, *, replaced: bool) -> None:
    place = folder / "plugins"
    agent = plugins(place)
    await agent.advertise(RESOURCE, devices("a"))

    async def remove() -> None:
        await until(lambda: place.exists() and sockets(place))
        place.rename(folder / "gone")
        if replaced:
            place.mkdir()

    with pytest.RaisesGroup(pytest.RaisesExc(PluginError, match="was removed"), flatten_subgroups=True):
        await asyncio.gather(agent.run(), remove())


async def test_changes_of_state_are_told(folder: Path, kubelet: FakeKubelet) -> None:
    await kubelet.start()
    seen: list[ResourceState] = []
    agent = DevicePlugins(FakeAllocator(), folder, on_change=seen.append)
    async with serving(agent):
        await agent.advertise(RESOURCE, devices("a"))
        await until(lambda: seen[-1].list_sent)
        last = seen[-1]
    assert (last.registered, last.streams, last.devices) == (True, 1, (Device("a", True),))
    assert last.pushed_at is not None
    assert not seen[0].registered
    assert not seen[-1].streams


def _leave_dead_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


async def test_an_agent_that_another_one_replaced_ends_instead_of_registering_again(
    folder: Path, kubelet: FakeKubelet
) -> None:
    await kubelet.start()
    still_ours = [True]
    agent = DevicePlugins(FakeAllocator(), folder, backoff=QUICK, may_register=lambda: still_ours[0])
    await agent.advertise(RESOURCE, devices("a"))

    async def replace() -> None:
        await until(lambda: kubelet.known() == {"a": HEALTHY})
        still_ours[0] = False
        await kubelet.hang_up()

    with pytest.RaisesGroup(pytest.RaisesExc(PluginError, match="another agent"), flatten_subgroups=True):
        async with asyncio.TaskGroup() as group:
            group.create_task(agent.run())
            group.create_task(replace())
    assert len(kubelet.registered) == 1
