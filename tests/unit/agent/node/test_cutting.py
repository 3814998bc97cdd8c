"""Cards are cut as ordered, around what is in use, and only when there is something to do."""

from collections.abc import Callable, Mapping
from typing import cast

from gpu_control_plane.agent.backends.interface import Backend, BackendError
from gpu_control_plane.agent.mig.units import unit_id
from gpu_control_plane.agent.node.cutting import RETRY, Cut, Cutter
from gpu_control_plane.agent.node.picture import Seen, look
from gpu_control_plane.agent.node.watch import HardwareWatch
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.units import Unit
from gpu_control_plane.api.allocation import MIG, Mode, ProfileCount
from gpu_control_plane.api.gpunodestate import ProblemReason
from unit.agent.node.scenes import NODE, RESOURCE, backend, first, picture, uuid_of

SEEN = first(picture())
UUID = uuid_of(SEEN)
SEVEN = MIG(profile="1g.18gb")
TWO = MIG(layout=(ProfileCount(profile="3g.71gb", count=2),))


class Bench:
    """A cutter over simulated cards, and the calls it made."""

    def __init__(self) -> None:
        self.below = backend()
        self.below.open()
        self.calls = 0
        self.now = 0.0
        self.cutter = Cutter(cast("HardwareWatch", self), monotonic=lambda: self.now)

    async def call[*A, R](self, function: Callable[[Backend, *A], R], *arguments: *A) -> R:
        self.calls += 1
        return function(self.below, *arguments)

    def cards(self) -> Mapping[str, Seen]:
        return look(NODE, self.below).seen

    async def cut(self, wish: MIG | None, held: dict[Unit, str] | None = None, listed: set[Unit] | None = None) -> Cut:
        return await self.cutter.cut({SEEN.id: wish}, self.cards(), listed or set(), held or {})

    def profiles(self) -> list[tuple[str, int]]:
        return [(instance.profile, instance.start) for instance in self.below.instances(SEEN.address)]


def instance(profile: str, start: int, size: int) -> Unit:
    return Unit(RESOURCE, unit_id(UUID, profile, start), SEEN.id, Mode.MIG, (start, start + size))


async def test_a_card_is_cut_once_and_left_alone_afterwards() -> None:
    bench = Bench()
    first_time = await bench.cut(SEVEN)
    assert first_time.changed
    assert bench.profiles() == [("1g.18gb", start) for start in range(7)]
    again = await bench.cut(SEVEN)
    assert not again.changed
    assert len(again.geometries[SEEN.id]) == 7
    calls = bench.calls
    await bench.cut(SEVEN)
    assert bench.calls == calls


async def test_an_instance_in_use_is_cut_around_and_the_reason_told() -> None:
    bench = Bench()
    await bench.cut(SEVEN)
    done = await bench.cut(TWO, held={instance("1g.18gb", 0, 1): "team/trainer"})
    assert bench.profiles() == [("1g.18gb", 0), ("3g.71gb", 4)]
    (problem,) = done.problems
    assert problem.reason is ProblemReason.WAITING
    assert "team/trainer" in problem.message
    finished = await bench.cut(TWO)
    assert bench.profiles() == [("3g.71gb", 0), ("3g.71gb", 4)]
    assert finished.problems == ()


async def test_a_reason_is_never_longer_than_the_api_takes() -> None:
    bench = Bench()
    await bench.cut(SEVEN)
    pods = {instance("1g.18gb", start, 1): f"{'n' * 63}/{start}{'p' * 252}" for start in range(7)}
    (problem,) = (await bench.cut(TWO, held=pods)).problems
    assert problem.reason is ProblemReason.WAITING
    assert len(problem.message) == 1024


async def test_what_the_kubelet_may_still_hand_out_is_not_touched() -> None:
    bench = Bench()
    await bench.cut(SEVEN)
    everything = {instance("1g.18gb", start, 1) for start in range(7)}
    done = await bench.cut(TWO, listed=everything)
    assert len(bench.profiles()) == 7
    assert done.problems[0].reason is ProblemReason.WAITING
    assert {slot.profile for slot in done.geometries[SEEN.id]} == {"3g.71gb"}


async def test_a_card_is_not_cut_while_a_pod_has_it_whole() -> None:
    bench = Bench()
    done = await bench.cut(SEVEN, held={Unit(RESOURCE, UUID, SEEN.id): "team/trainer"})
    assert bench.profiles() == []
    assert "team/trainer" in done.problems[0].message


async def test_what_can_never_be_is_said_at_once() -> None:
    bench = Bench()
    done = await bench.cut(MIG(profile="9g.999gb"))
    assert done.problems[0].reason is ProblemReason.MISCONFIGURED
    assert "1g.18gb" in done.problems[0].message
    assert done.retry is None


async def test_a_failed_cut_is_tried_again_later_and_not_before() -> None:
    bench = Bench()

    def fail_once(attempt: int) -> None:
        if attempt <= 1:
            raise BackendError("The driver did not like it.")

    bench.below = SimulatedBackend(NODE, bench.below._machine, before_create=fail_once)
    bench.below.open()
    failed = await bench.cut(TWO)
    assert (failed.problems[0].reason, failed.retry) == (ProblemReason.FAILED, RETRY)
    calls = bench.calls
    await bench.cut(TWO)
    assert bench.calls - calls <= 1
    bench.now += RETRY
    await bench.cut(TWO)
    done = await bench.cut(TWO)
    assert done.problems == ()
    assert len(bench.profiles()) == 2
