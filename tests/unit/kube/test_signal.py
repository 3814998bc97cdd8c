"""A signal wakes controllers as a cache does, and at most once in its interval."""

import asyncio
from collections.abc import Awaitable, Callable

from gpu_control_plane.kube.controller import Controller
from gpu_control_plane.kube.metrics import Metrics
from gpu_control_plane.kube.objects import Key
from gpu_control_plane.kube.signal import Fired, Signal
from simulation.loop import SimulatedLoop

A, B = Key("a"), Key("b")


def in_virtual_time(scenario: Callable[[], Awaitable[None]]) -> None:
    SimulatedLoop(0).run(scenario())


class Recorder:
    """The keys that a signal delivered, each with the second in which it did."""

    def __init__(self, signal: Signal) -> None:
        self.heard: list[tuple[float, str]] = []
        signal.on_change(self._hear)

    def _hear(self, _old: Fired | None, new: Fired | None) -> None:
        assert new is not None
        self.heard.append((asyncio.get_running_loop().time(), new.key.name))

    @property
    def keys(self) -> list[str]:
        return [name for _, name in self.heard]


async def reconciled_by(signal: Signal, work: Callable[[], Awaitable[None]]) -> list[Key]:
    """The keys that a controller which watches the signal works on while `work` runs."""
    found: list[Key] = []

    async def reconcile(key: Key) -> None:
        found.append(key)

    controller = Controller("listener", reconcile, metrics=Metrics()).watch(signal)
    running = asyncio.ensure_future(controller.run())
    await asyncio.sleep(0.01)
    await work()
    await asyncio.sleep(10)
    running.cancel()
    await asyncio.wait((running,))
    return found


def test_a_controller_works_on_the_keys_that_are_fired() -> None:
    async def scenario() -> None:
        signal = Signal("devices")

        async def fire() -> None:
            signal.fire(A, B)

        assert sorted(await reconciled_by(signal, fire)) == [A, B]

    in_virtual_time(scenario)


def test_without_a_key_the_signals_own_is_fired() -> None:
    async def scenario() -> None:
        signal = Signal("lease")

        async def fire() -> None:
            signal.fire()

        assert await reconciled_by(signal, fire) == [Key("lease")]

    in_virtual_time(scenario)


def test_a_controller_that_has_ended_is_not_woken_and_one_that_starts_gets_no_old_keys() -> None:
    async def scenario() -> None:
        signal = Signal("devices")

        async def fire() -> None:
            signal.fire(A)

        async def nothing() -> None: ...

        assert await reconciled_by(signal, fire) == [A]
        signal.fire(B)
        assert await reconciled_by(signal, nothing) == []

    in_virtual_time(scenario)


def test_handlers_are_called_before_fire_returns_in_the_order_of_their_subscription() -> None:
    signal, order = Signal("policy"), []
    signal.on_change(lambda _old, _new: order.append("index"))
    signal.on_change(lambda _old, _new: order.append("controller"))
    signal.fire()
    assert order == ["index", "controller"]


def test_a_handler_that_was_removed_hears_nothing() -> None:
    signal, heard = Signal("policy"), list[Fired | None]()

    def hear(_old: Fired | None, new: Fired | None) -> None:
        heard.append(new)

    signal.on_change(hear)
    signal.remove_handler(hear)
    signal.fire()
    assert heard == []


def test_a_signal_that_watches_another_fires_its_own_key() -> None:
    async def scenario() -> None:
        leases, policy = Signal("lease"), Signal("policy")
        recorder = Recorder(policy.watch(leases))
        leases.fire()
        assert recorder.keys == ["policy"]

    in_virtual_time(scenario)


def test_a_signal_passes_on_the_keys_that_concern_it_and_only_changes_that_matter() -> None:
    async def scenario() -> None:
        pods, nodes = Signal("pods"), Signal("nodes")

        def node_of(fired: Fired) -> list[Key]:
            return [Key(f"node-of-{fired.key}")] if fired.key != B else []

        recorder = Recorder(nodes.watch(pods, node_of, when=lambda _old, new: new != Fired(Key("uninteresting"))))
        pods.fire(A, B, Key("uninteresting"))
        assert recorder.keys == ["node-of-a"]

    in_virtual_time(scenario)


def test_the_first_of_many_is_delivered_at_once_and_the_rest_together_after_the_interval() -> None:
    async def scenario() -> None:
        signal = Signal("nodes", interval=0.5)
        recorder = Recorder(signal)
        for _ in range(3):
            signal.fire(A)
            await asyncio.sleep(0.1)
            signal.fire(B)
        assert recorder.heard == [(0.0, "a")]
        await asyncio.sleep(10)
        assert recorder.heard == [(0.0, "a"), (0.5, "b"), (0.5, "a")]
        signal.fire(B)
        assert len(recorder.heard) == 4, "the interval is over, so nothing waits"

    in_virtual_time(scenario)


def test_what_is_fired_for_ever_is_delivered_once_in_each_interval() -> None:
    async def scenario() -> None:
        signal = Signal("nodes", interval=1.0)
        recorder = Recorder(signal)
        for _ in range(95):
            signal.fire()
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)
        assert len(recorder.heard) == 11

    in_virtual_time(scenario)
