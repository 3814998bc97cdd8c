"""Calls in the background: repeated while they are asked for, made once where that is meant, and never in each other's
way. Time is virtual."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta

import msgspec

from gpu_control_plane.kube.objects import Key
from gpu_control_plane.ray.dashboard.calls import DashboardCalls, Pace
from gpu_control_plane.ray.dashboard.errors import DashboardError, NoAnswer
from simulation.loop import SimulatedLoop

KEY = Key("demo", "team")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Bench:
    """Calls on a loop with virtual time, and what a call was answered."""

    def __init__(self, loop: SimulatedLoop, pace: Pace | None = None) -> None:
        self._loop = loop
        self.leading = True
        self.calls = DashboardCalls(
            now=lambda: BEGIN + timedelta(seconds=loop.time()),
            may_call=lambda: self.leading,
            pace=pace,
            rng=random.Random(1),
        )
        self.fired: list[Key] = []
        self.calls.signal.on_change(lambda _old, new: self.fired.append(new.key) if new is not None else None)
        self.made: list[float] = []
        self.gives: str | DashboardError = "PENDING"

    async def call(self) -> str:
        self.made.append(self._loop.time())
        if isinstance(self.gives, DashboardError):
            raise self.gives
        return self.gives

    async def hang(self) -> str:
        await asyncio.sleep(5)
        raise NoAnswer("late")


def simulate(play: Callable[[Bench], Coroutine[None, None, None]], pace: Pace | None = None) -> None:
    loop = SimulatedLoop(4711)

    async def main() -> None:
        bench = Bench(loop, pace)
        running = asyncio.ensure_future(bench.calls.run())
        await asyncio.sleep(0)
        await play(bench)
        running.cancel()
        await asyncio.wait((running,))

    loop.run(main())


def test_a_poll_grows_slower_while_nothing_changes_and_quick_again_after_a_change() -> None:
    async def play(bench: Bench) -> None:
        bench.calls.ask(KEY, "job", bench.call, every=2)
        await asyncio.sleep(60)
        pauses = [later - earlier for earlier, later in zip(bench.made, bench.made[1:], strict=False)]
        assert 1.8 <= pauses[0] <= 2.2
        assert all(pause <= 11 for pause in pauses)
        assert pauses[-1] >= 9
        assert len(bench.fired) == 1

        bench.gives = "RUNNING"
        await asyncio.sleep(11)
        assert len(bench.fired) == 2
        before = len(bench.made)
        await asyncio.sleep(6)
        assert len(bench.made) - before >= 2

    simulate(play)


def test_a_call_without_a_rhythm_is_made_until_it_succeeds_and_then_never_again() -> None:
    async def play(bench: Bench) -> None:
        bench.gives = NoAnswer("away")
        assert bench.calls.ask(KEY, "submit", bench.call) is None
        await asyncio.sleep(20)
        assert len(bench.made) > 2
        assert bench.fired == [KEY]  # the failure is told once
        bench.gives = "demo-x1"
        await asyncio.sleep(60)
        made = len(bench.made)
        await asyncio.sleep(300)
        assert len(bench.made) == made
        answer = bench.calls.ask(KEY, "submit", bench.call)
        assert answer is not None
        assert answer.value == "demo-x1"

    simulate(play)


def test_an_answer_says_since_when_it_holds() -> None:
    async def play(bench: Bench) -> None:
        bench.gives = NoAnswer("refused")
        bench.calls.ask(KEY, "job", bench.call, every=2)
        await asyncio.sleep(30)
        bench.gives = NoAnswer("timed out")
        await asyncio.sleep(60)
        answer = bench.calls.ask(KEY, "job", bench.call, every=2)
        assert answer is not None
        assert answer.since == BEGIN  # no call has succeeded since, whatever the reasons
        assert answer.at > BEGIN + timedelta(seconds=30)

    simulate(play)


def test_what_is_forgotten_is_called_no_more() -> None:
    async def play(bench: Bench) -> None:
        bench.calls.ask(KEY, "job", bench.call, every=2)
        bench.calls.ask(KEY, "stop", bench.call, every=2)
        await asyncio.sleep(3)
        bench.calls.keep(KEY, ["job"])
        assert len(bench.calls) == 1
        assert bench.calls.latest(KEY, "stop") is None
        bench.calls.forget(KEY)
        made = len(bench.made)
        await asyncio.sleep(100)
        assert (len(bench.made), len(bench.calls)) == (made, 0)

    simulate(play)


def test_dashboards_that_hang_hold_up_no_other() -> None:
    """400 dashboards hang, each until its deadline; a healthy one among them keeps its rhythm."""

    async def play(bench: Bench) -> None:
        for number in range(400):
            bench.calls.ask(Key(f"hangs-{number}", "team"), "job", bench.hang, every=2)
        await asyncio.sleep(30)
        bench.calls.ask(KEY, "job", bench.call, every=2)
        await asyncio.sleep(0.1)
        assert len(bench.made) == 1
        bench.gives = "RUNNING"
        await asyncio.sleep(2.5)
        assert len(bench.made) == 2

    simulate(play)


def test_slow_dashboards_of_one_namespace_hold_up_no_other_namespace() -> None:
    """1,000 dashboards answer, each only after 4.5 seconds; that of a neighbour keeps its rhythm from the beginning."""

    async def play(bench: Bench) -> None:
        async def slow() -> str:
            await asyncio.sleep(4.5)
            return "RUNNING"

        for number in range(1000):
            bench.calls.ask(Key(f"slow-{number}", "noisy"), "job", slow, every=2)
        await asyncio.sleep(1)
        bench.calls.ask(KEY, "job", bench.call, every=2)
        for turn in range(100):
            bench.gives = str(turn)
            await asyncio.sleep(2.3)
            assert len(bench.made) >= turn + 1, f"not called in time after {turn} turns"

    simulate(play)


def test_a_new_dashboard_is_called_within_seconds_while_those_of_many_namespaces_are_slow() -> None:
    async def play(bench: Bench) -> None:
        async def slow() -> str:
            await asyncio.sleep(4.5)
            return "RUNNING"

        for number in range(2000):
            bench.calls.ask(Key(f"slow-{number}", f"noisy-{number % 5}"), "job", slow, every=2)
        await asyncio.sleep(1)
        bench.calls.ask(KEY, "job", bench.call, every=2)
        await asyncio.sleep(4)
        assert len(bench.made) == 1
        for turn in range(20):
            made = len(bench.made)
            bench.gives = str(turn)
            await asyncio.sleep(7)
            assert len(bench.made) > made

    simulate(play)


def test_a_slow_dashboard_is_called_within_seconds_while_others_are_slow() -> None:
    async def play(bench: Bench) -> None:
        async def slow() -> str:
            await asyncio.sleep(4.5)
            return "RUNNING"

        async def mine() -> str:
            await asyncio.sleep(1.5)
            return await bench.call()

        for number in range(1000):
            bench.calls.ask(Key(f"slow-{number}", "noisy"), "job", slow, every=2)
        bench.calls.ask(KEY, "job", mine, every=2)
        for turn in range(20):
            bench.gives = str(turn)
            await asyncio.sleep(4)
            assert len(bench.made) >= turn + 1

    simulate(play)


def test_calls_that_end_while_they_wait_leave_their_places_to_others() -> None:
    async def play(bench: Bench) -> None:
        keys = [Key(f"hangs-{number}", "team") for number in range(50)]
        for turn in range(20):
            for key in keys:
                bench.calls.ask(key, "job", bench.hang, every=2)
            await asyncio.sleep(0.1 * turn)
            for key in keys:
                bench.calls.forget(key)
        await asyncio.sleep(0)
        for key in keys[:4]:
            bench.calls.ask(key, "job", bench.call)
        await asyncio.sleep(0.1)
        assert len(bench.made) == 4

    simulate(play, Pace(at_once=4, at_once_for_namespace=4, slow_at_once=2))


class Large(msgspec.Struct, frozen=True):
    size: int


def test_answers_of_one_namespace_take_so_much_memory_and_no_more() -> None:
    async def play(bench: Bench) -> None:
        async def large() -> Large:
            return Large(size=30)

        keys = [Key(f"large-{number}", "noisy") for number in range(4)]
        for key in (*keys, KEY):
            bench.calls.ask(key, "serve", large, every=2)
            await asyncio.sleep(10)
        answers = [bench.calls.latest(key, "serve") for key in (*keys, KEY)]
        kept = [answer is not None and answer.value is not None for answer in answers]
        assert kept == [True, True, True, False, True]
        assert answers[3] is not None
        assert "the dashboards of the namespace noisy say takes more than" in str(answers[3].error)
        bench.calls.forget(keys[0])
        await asyncio.sleep(40)
        later = bench.calls.latest(keys[3], "serve")
        assert later is not None
        assert later.value == Large(size=30)

    simulate(play, Pace(kept_of_namespace=100))


def test_all_answers_take_so_much_memory_and_no_more() -> None:
    async def play(bench: Bench) -> None:
        async def large() -> Large:
            return Large(size=30)

        keys = [Key("large", f"team-{number}") for number in range(4)]
        for key in keys:
            bench.calls.ask(key, "serve", large, every=2)
            await asyncio.sleep(0.1)
        answers = [bench.calls.latest(key, "serve") for key in keys]
        assert [answer is not None and answer.error is None for answer in answers] == [True, True, True, False]

    simulate(play, Pace(kept=100))


def test_no_more_calls_are_made_at_once_than_allowed() -> None:
    at_once = most = 0

    async def play(bench: Bench) -> None:
        async def counted() -> str:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(1)
            at_once -= 1
            return "ok"

        for number in range(50):
            bench.calls.ask(Key(f"job-{number}", "team"), "job", counted)
        for name in "abc":
            bench.calls.ask(KEY, name, bench.call)
        await asyncio.sleep(60)

    simulate(play, Pace(at_once=8))
    assert most == 8


def test_calls_of_two_controllers_are_kept_apart() -> None:
    async def play(bench: Bench) -> None:
        jobs, services = bench.calls.for_controller("jobs"), bench.calls.for_controller("services")
        jobs.ask(KEY, "x", bench.call)
        services.ask(KEY, "x", bench.call)
        jobs.forget(KEY)
        await asyncio.sleep(1)
        assert services.latest(KEY, "x") is not None
        assert jobs.latest(KEY, "x") is None
        assert len(bench.made) == 1

    simulate(play)


def test_a_process_that_does_not_lead_makes_no_calls() -> None:
    async def play(bench: Bench) -> None:
        bench.leading = False
        bench.calls.ask(KEY, "submit", bench.call)
        await asyncio.sleep(100)
        assert bench.made == []
        bench.leading = True
        await asyncio.sleep(3)
        assert len(bench.made) == 1

    simulate(play)


def test_a_bug_in_one_call_ends_no_other() -> None:
    async def play(bench: Bench) -> None:
        async def broken() -> str:
            raise ZeroDivisionError

        bench.calls.ask(Key("broken", "team"), "job", broken, every=2)
        bench.calls.ask(KEY, "job", bench.call, every=2)
        await asyncio.sleep(20)
        assert len(bench.made) > 3
        answer = bench.calls.latest(Key("broken", "team"), "job")
        assert answer is not None
        assert "ZeroDivisionError" in str(answer.error)

    simulate(play)


def test_what_was_asked_before_the_calls_run_is_called_when_they_do() -> None:
    loop = SimulatedLoop(1)

    async def main() -> None:
        bench = Bench(loop)
        bench.calls.ask(KEY, "job", bench.call)
        running = asyncio.ensure_future(bench.calls.run())
        await asyncio.sleep(1)
        assert len(bench.made) == 1
        running.cancel()
        await asyncio.wait((running,))

    loop.run(main())
