"""An allocation is checked once more, and counts as held from the first moment on."""

import asyncio
from typing import Any, cast

import pytest

from gpu_control_plane.agent.backends.interface import CardLost, Process
from gpu_control_plane.agent.cdi.container_allocation import device_name
from gpu_control_plane.agent.cdi.edits import DeviceNode, Edits
from gpu_control_plane.agent.cdi.injectable import InjectableDevice, InjectableDevices
from gpu_control_plane.agent.cdi.spec import Device
from gpu_control_plane.agent.kubelet.interface import AllocationRefused
from gpu_control_plane.agent.node.allocator import Allocator
from gpu_control_plane.agent.node.hardware_watch import HardwareWatch
from gpu_control_plane.agent.step import Allocatable
from gpu_control_plane.agent.units import ContainerDevices, Hold, PodDevices, Unit, replica_id
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpunodestate import Injection
from unit.agent.step.builders import RESOURCE, hardware, uuid_of

OBSERVED = hardware().observed
CARDS = list(OBSERVED.values())
WHOLE = [Unit(RESOURCE, uuid_of(card), card.id) for card in CARDS]


class Watch:
    """Answers as slowly, or as badly, as a test wants."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.lost = False
        self.processes: tuple[Process, ...] = ()

    async def call_within(self, _seconds: float, *_anything: object) -> tuple[Process, ...]:
        await self.answers.wait()
        if self.lost:
            raise CardLost("It no longer answers.")
        return self.processes


def grantable(unit: Unit) -> InjectableDevice:
    node = DeviceNode(path=f"/dev/{unit.card}", host_path=f"/dev/{unit.card}", type="c", major=1, minor=3)
    return InjectableDevice(Device(device_name(unit.id), Edits(device_nodes=(node,))), unit.id)


def allocator(
    watch: Watch,
    units: list[Unit],
    injection: Injection = Injection.CDI,
    now: list[float] | None = None,
    holds: frozenset[Hold] = frozenset(),
    **asked: Any,
) -> Allocator:
    clock = now or [0.0]

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    made = Allocator(cast("HardwareWatch", watch), injection, monotonic=lambda: clock[0], sleep=sleep, **asked)
    devices = {device_name(unit.id): grantable(unit) for unit in units}
    described = InjectableDevices(injectable=tuple(devices.values()), common=Edits(), problems=())
    made.use(Allocatable(units=frozenset(units), holds=holds), OBSERVED, described)
    return made


def listed(unit: Unit) -> list[ContainerDevices]:
    """The kubelet's list once it has the unit."""
    return [ContainerDevices("team", "trainer", "main", unit.resource, (unit.id,))]


async def test_a_container_gets_the_names_of_its_devices() -> None:
    grant = await allocator(Watch(), WHOLE).allocate(RESOURCE, (WHOLE[0].id,))
    assert grant.cdi_devices == (f"gpu.deckhouse.io/gpu={WHOLE[0].id}",)
    assert not grant.devices


async def test_without_cdi_a_container_gets_the_device_files_themselves() -> None:
    grant = await allocator(Watch(), WHOLE, Injection.KUBELET).allocate(RESOURCE, (WHOLE[1].id,))
    assert [node.path for node in grant.devices] == [f"/dev/{WHOLE[1].card}"]
    assert not grant.cdi_devices


@pytest.mark.parametrize("asked", [("nonsense",), ("",), (WHOLE[1].id,)])
async def test_a_unit_that_is_not_allocatable_is_refused(asked: tuple[str, ...]) -> None:
    with pytest.raises(AllocationRefused, match="not on offer"):
        await allocator(Watch(), WHOLE[:1]).allocate(RESOURCE, asked)


async def test_a_unit_is_refused_under_another_resource() -> None:
    with pytest.raises(AllocationRefused, match="not on offer"):
        await allocator(Watch(), WHOLE).allocate("gpu.deckhouse.io/other", (WHOLE[0].id,))


async def test_a_card_lost_since_the_last_probe_is_refused() -> None:
    watch = Watch()
    watch.lost = True
    at = allocator(watch, WHOLE)
    with pytest.raises(AllocationRefused, match="no longer answers"):
        await at.allocate(RESOURCE, (WHOLE[0].id,))
    assert at.in_flight(()) == set()


async def test_a_unit_counts_as_held_while_it_is_being_allocated_and_until_the_kubelet_lists_it() -> None:
    watch, now = Watch(), [0.0]
    at = allocator(watch, WHOLE, now=now)
    watch.answers.clear()
    call = asyncio.create_task(at.allocate(RESOURCE, (WHOLE[0].id,)))
    await asyncio.sleep(0)
    now[0] = 100.0
    assert at.in_flight(()) == {WHOLE[0]}, "however long the call takes"
    watch.answers.set()
    await call
    assert at.in_flight(()) == {WHOLE[0]}
    assert at.in_flight(listed(WHOLE[0])) == set(), "the kubelet lists it now"


async def test_a_unit_whose_pod_failed_is_free_again_after_a_while() -> None:
    now = [0.0]
    at = allocator(Watch(), WHOLE, now=now)
    await at.allocate(RESOURCE, (WHOLE[0].id,))
    now[0] = 60.0
    assert at.in_flight(()) == set()


async def test_replicas_are_spread_over_the_cards() -> None:
    units = [
        Unit(RESOURCE, replica_id(uuid_of(card), number), card.id, Mode.TIME_SLICE)
        for card in CARDS
        for number in range(3)
    ]
    chosen = allocator(Watch(), units).prefer(RESOURCE, [unit.id for unit in units], [], 2)
    cards = {unit.card for unit in units if unit.id in chosen}
    assert len(cards) == 2


async def test_another_card_is_preferred_before_the_kubelet_lists_the_last_allocation() -> None:
    units = [
        Unit(RESOURCE, replica_id(uuid_of(card), number), card.id, Mode.TIME_SLICE)
        for card in CARDS
        for number in range(2)
    ]
    at = allocator(Watch(), units)
    for taken in units:
        await at.allocate(RESOURCE, (taken.id,))
        (chosen,) = at.prefer(RESOURCE, [unit.id for unit in units if unit != taken], [], 1)
        assert next(unit.card for unit in units if unit.id == chosen) != taken.card
        at.in_flight(listed(taken))


async def test_unknown_device_ids_are_left_out_of_the_preference() -> None:
    chosen = allocator(Watch(), WHOLE).prefer(RESOURCE, ["stranger", WHOLE[0].id], [], 1)
    assert list(chosen) == [WHOLE[0].id]


HOLD = Hold(WHOLE[0], "uid-1", "team/trainer")


async def test_a_card_whose_last_pod_still_runs_is_refused_with_its_name() -> None:
    at = allocator(Watch(), WHOLE, holds=frozenset({HOLD}), living=lambda uids: uids)
    with pytest.raises(AllocationRefused, match="still used by team/trainer"):
        await at.allocate(RESOURCE, (WHOLE[0].id,))
    await at.allocate(RESOURCE, (WHOLE[1].id,))


async def test_an_agent_that_was_replaced_allocates_nothing() -> None:
    at = allocator(Watch(), WHOLE, may_allocate=lambda: False)
    with pytest.raises(AllocationRefused, match="Another agent serves this node"):
        await at.allocate(RESOURCE, (WHOLE[0].id,))


async def test_a_pod_waits_for_the_last_one_to_end() -> None:
    looks = iter([{"uid-1"}, {"uid-1"}, set()])
    now, obstacles = [0.0], list[float]()
    at = allocator(
        Watch(),
        WHOLE,
        now=now,
        holds=frozenset({HOLD}),
        living=lambda _uids: next(looks),
        on_obstacle=lambda: obstacles.append(now[0]),
    )
    assert (await at.allocate(RESOURCE, (WHOLE[0].id,))).cdi_devices
    assert 0 < now[0] < 5
    assert obstacles == [0.0], "the agent is told at once, and once"


async def test_a_pod_that_only_the_kubelets_checkpoint_knows_keeps_its_card() -> None:
    recorded = (PodDevices("uid-2", RESOURCE, (WHOLE[0].id,)),)
    at = allocator(Watch(), WHOLE, living=lambda uids: uids, checkpoint=lambda: recorded)
    with pytest.raises(AllocationRefused, match="uid-2"):
        await at.allocate(RESOURCE, (WHOLE[0].id,))
    assert at.recorded() == set(recorded), "the next step learns of it"


@pytest.mark.parametrize("owner", ["uid-3", None])
async def test_a_card_with_a_process_of_another_pod_is_refused_and_tools_of_the_host_do_no_harm(
    owner: str | None,
) -> None:
    watch = Watch()
    watch.processes = (Process(pid=4711),)
    at = allocator(watch, WHOLE, pod_of=lambda _pid: owner)
    if owner is None:
        assert (await at.allocate(RESOURCE, (WHOLE[0].id,))).cdi_devices
        return
    with pytest.raises(AllocationRefused, match="process 4711"):
        await at.allocate(RESOURCE, (WHOLE[0].id,))


async def test_time_sliced_cards_may_have_processes_of_other_pods() -> None:
    watch = Watch()
    watch.processes = (Process(pid=4711),)
    unit = Unit(RESOURCE, replica_id(uuid_of(CARDS[0]), 0), CARDS[0].id, Mode.TIME_SLICE)
    assert (await allocator(watch, [unit], pod_of=lambda _pid: "uid-3").allocate(RESOURCE, (unit.id,))).cdi_devices
