"""Simulated cards on a real node: their files, what they remember, and what happens to them."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.agent.backends.interface import (
    BackendError,
    CardLost,
    DeviceFile,
    Instance,
    InUse,
    NoRoom,
    Process,
    Recovery,
    Signals,
)
from gpu_control_plane.agent.backends.measures import Measure
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import (
    Machine,
    break_memory,
    heal,
    lose,
    new_machine,
    overheat,
    pull,
    reinstall,
    report_xid,
    slow_down,
    swap,
    wear_out,
)
from gpu_control_plane.agent.simulated.models import PROFILES, pci_address

AT, NEXT = pci_address(0), pci_address(1)
H200 = new_machine("H200-141", 2)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device files")


def opened(folder: Path, machine: Machine = H200, **options: str) -> SimulatedBackend:
    backend = SimulatedBackend("worker-3", machine, device_root=folder, **options)  # type: ignore[arg-type]
    backend.open()
    return backend


def cut(backend: SimulatedBackend, *places: tuple[str, int]) -> tuple[Instance, ...]:
    backend.set_mig_mode(AT, enabled=True)
    return tuple(backend.create_instance(AT, profile, start) for profile, start in places)


# Device files


@needs_root
def test_device_files_are_real_and_do_no_harm(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    files = (*backend.control_files(), *backend.device_files(AT), *backend.device_files(NEXT))
    assert [file.path for file in files] == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1"]
    for file in files:
        path = Path(file.source)
        assert path.is_relative_to(tmp_path)
        assert path.is_char_device()
        assert path.stat().st_rdev == Path("/dev/null").stat().st_rdev
        path.write_text("swallowed")


@needs_root
def test_opening_again_leaves_files_alone_and_replaces_what_is_no_device(tmp_path: Path) -> None:
    opened(tmp_path)
    before = (tmp_path / "nvidia1").stat().st_ino
    (tmp_path / "nvidia0").unlink()
    (tmp_path / "nvidia0").write_text("")
    opened(tmp_path)
    assert (tmp_path / "nvidia0").is_char_device()
    assert (tmp_path / "nvidia1").stat().st_ino == before


@needs_root
def test_the_file_of_a_pulled_card_goes_and_comes_back_with_it(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    backend.update(pull(H200, AT))
    assert not (tmp_path / "nvidia0").exists()
    assert (tmp_path / "nvidia1").exists()
    backend.update(H200)
    assert (tmp_path / "nvidia0").exists()


@needs_root
def test_the_files_of_an_instance_live_as_long_as_it_does(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    (instance,) = cut(backend, ("1g.18gb", 3))
    paths = [Path(file.source) for file in backend.instance_files(AT, instance)]
    assert all(path.is_char_device() for path in paths)
    backend.destroy_instance(AT, instance)
    assert not any(path.exists() for path in paths)


def test_without_a_folder_files_have_the_names_of_real_ones() -> None:
    assert SimulatedBackend("worker-3", H200).device_files(NEXT) == (DeviceFile("/dev/nvidia1"),)


def test_device_files_of_a_slow_node_take_their_time() -> None:
    slept: list[float] = []
    backend = SimulatedBackend("worker-3", slow_down(H200, 30), sleep=slept.append)
    backend.device_files(AT)
    assert slept == [30]


# Memory


def test_instances_are_still_there_for_the_next_agent(tmp_path: Path) -> None:
    made = cut(opened(tmp_path), ("3g.71gb", 4), ("1g.18gb", 0))
    again = opened(tmp_path)
    assert again.instances(AT) == (made[1], made[0])
    assert [card.mig.enabled for card in again.cards() if card.mig] == [True, False]


@pytest.mark.parametrize("change", [reinstall, lambda machine: swap(machine, AT)])
def test_instances_are_gone_after_a_restart_and_with_their_card(tmp_path: Path, change: object) -> None:
    assert callable(change)
    running, later = opened(tmp_path), change(H200)
    cut(running, ("1g.18gb", 0))
    running.update(later)
    for backend in (running, opened(tmp_path, later)):
        assert backend.instances(AT) == ()
        assert not any(card.mig.enabled for card in backend.cards() if card.mig)


def test_the_boot_id_of_the_real_node_counts_where_it_is_given(tmp_path: Path) -> None:
    first = opened(tmp_path, boot="first")
    cut(first, ("1g.18gb", 0))
    assert first.facts().boot_id == "first"
    assert len(opened(tmp_path, boot="first").instances(AT)) == 1
    assert opened(tmp_path, boot="second").instances(AT) == ()


def test_the_instances_of_a_card_that_is_pulled_are_gone_when_it_comes_back(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    cut(backend, ("1g.18gb", 0))
    backend.update(pull(H200, AT))
    backend.update(H200)
    assert backend.instances(AT) == ()


def test_a_state_file_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    (tmp_path / "cards.json").write_text("{")
    with pytest.raises(BackendError, match=r"cards\.json cannot be understood"):
        opened(tmp_path)


def test_every_instance_has_an_identity_of_its_own(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    (first,) = cut(backend, ("1g.18gb", 0))
    backend.destroy_instance(AT, first)
    second = backend.create_instance(AT, "1g.18gb", 0)
    assert first.uuid != second.uuid
    assert first.uuid.startswith("MIG-")


def test_the_same_history_gives_the_same_identities(tmp_path: Path) -> None:
    places = (("1g.18gb", 0), ("2g.35gb", 2))
    one, other = opened(tmp_path / "one"), opened(tmp_path / "other")
    assert cut(one, *places) == cut(other, *places)


# MIG


def test_an_instance_in_use_stays() -> None:
    backend = SimulatedBackend("worker-3", H200)
    first, second = cut(backend, ("1g.18gb", 0), ("1g.18gb", 1))
    backend.occupy(frozenset(), frozenset({first.uuid}))
    with pytest.raises(InUse):
        backend.destroy_instance(AT, first)
    backend.destroy_instance(AT, second)
    backend.occupy(frozenset())
    backend.destroy_instance(AT, first)


def test_a_program_keeps_its_instance_and_its_card() -> None:
    programs: dict[str, list[Process]] = {}
    backend = SimulatedBackend("worker-3", H200, processes=programs)
    (instance,) = cut(backend, ("1g.18gb", 0))
    programs[AT] = [Process(pid=42, instance=instance.uuid)]
    assert backend.processes(AT) == (Process(pid=42, instance=instance.uuid),)
    with pytest.raises(InUse):
        backend.destroy_instance(AT, instance)
    programs[NEXT] = [Process(pid=43)]
    with pytest.raises(InUse):
        backend.set_mig_mode(NEXT, enabled=True)


def test_a_card_that_a_pod_holds_keeps_its_mode() -> None:
    backend = SimulatedBackend("worker-3", H200, frozenset({AT}))
    with pytest.raises(InUse):
        backend.set_mig_mode(AT, enabled=True)
    backend.set_mig_mode(AT, enabled=False)


def test_the_driver_can_be_made_to_fail_at_a_chosen_attempt() -> None:
    def second_fails(attempt: int) -> None:
        if attempt == 2:
            raise BackendError("The driver failed.")

    backend = SimulatedBackend("worker-3", H200, before_create=second_fails)
    cut(backend, ("1g.18gb", 0))
    with pytest.raises(BackendError, match="The driver failed"):
        backend.create_instance(AT, "1g.18gb", 1)
    backend.create_instance(AT, "1g.18gb", 1)
    assert [instance.start for instance in backend.instances(AT)] == [0, 1]


MIG = PROFILES["H200-141"].mig
assert MIG is not None
PLACES = [(profile.name, start) for profile in MIG.profiles for start in profile.starts]


@given(st.lists(st.one_of(st.sampled_from(PLACES), st.integers(0, 6)), max_size=40))
def test_whatever_is_cut_and_joined_instances_never_overlap(steps: list[tuple[str, int] | int]) -> None:
    """A number destroys the instance at that place in the list, if there is one."""
    assert MIG is not None
    backend = SimulatedBackend("worker-3", H200)
    backend.set_mig_mode(AT, enabled=True)
    uuids: set[str] = set()
    for step in steps:
        before = backend.instances(AT)
        if isinstance(step, int):
            for instance in before[step : step + 1]:
                backend.destroy_instance(AT, instance)
            continue
        try:
            made = backend.create_instance(AT, *step)
        except NoRoom:
            assert backend.instances(AT) == before
        else:
            assert made.uuid not in uuids
            uuids.add(made.uuid)
        held = [piece for one in backend.instances(AT) for piece in range(one.start, one.start + one.size)]
        assert len(held) == len(set(held)) <= 8
        assert len({instance.gpu_instance for instance in backend.instances(AT)}) == len(backend.instances(AT))
        for profile in MIG.profiles:
            assert sum(one.profile == profile.name for one in backend.instances(AT)) <= profile.count


# News


@pytest.mark.parametrize(
    ("change", "concerned"),
    [
        (lambda machine: report_xid(machine, NEXT, 79), {NEXT}),
        (lambda machine: lose(break_memory(machine, AT), NEXT), {AT, NEXT}),
        (reinstall, {AT, NEXT}),
        (lambda machine: slow_down(machine, 1), set()),
    ],
)
def test_a_wait_ends_with_the_cards_that_a_change_is_about(change: object, concerned: set[str]) -> None:
    assert callable(change)
    backend = SimulatedBackend("worker-3", H200)
    heard: list[frozenset[str]] = []
    waiting = threading.Thread(target=lambda: heard.append(backend.wait(30)))
    waiting.start()
    backend.update(change(H200))
    waiting.join(timeout=60)
    assert heard == [concerned]


def test_news_that_came_before_the_wait_are_not_lost_and_told_once() -> None:
    backend = SimulatedBackend("worker-3", H200)
    backend.update(report_xid(H200, AT, 79))
    backend.update(lose(report_xid(H200, AT, 79), NEXT))
    assert backend.wait(0) == {AT, NEXT}
    assert backend.wait(0) == frozenset()


def test_the_same_document_again_is_no_news() -> None:
    backend = SimulatedBackend("worker-3", H200)
    backend.update(new_machine("H200-141", 2))
    assert not backend._changed.is_set()


def test_everything_that_can_be_wrong_shows_in_the_signals() -> None:
    machine = report_xid(break_memory(H200, AT, 3), AT, 48)
    machine = overheat(wear_out(wear_out(machine, AT, failed=False), AT, failed=True), AT)
    assert SimulatedBackend("worker-3", machine).signals(AT) == Signals(
        xids=(48,),
        uncorrected_ecc=3,
        remap_pending=True,
        remap_failed=True,
        overheated=True,
        recovery=Recovery.RESET,
    )


def test_cleared_reports_stay_cleared_and_new_ones_count(tmp_path: Path) -> None:
    machine = report_xid(H200, AT, 62)
    backend = opened(tmp_path, machine)
    backend.clear(AT)
    assert backend.signals(AT).xids == ()
    machine = report_xid(machine, AT, 62)
    backend.update(machine)
    assert backend.signals(AT).xids == (62,)
    assert opened(tmp_path, machine).signals(AT).xids == (62,), "what was cleared is not forgotten by the next agent"


def test_a_fault_that_comes_back_after_the_card_was_healed_counts() -> None:
    machine = report_xid(H200, AT, 79)
    backend = SimulatedBackend("worker-3", machine)
    backend.clear(AT)
    backend.update(heal(machine, AT))
    backend.update(machine)
    assert backend.signals(AT).xids == (79,)


def test_a_lost_card_answers_nothing() -> None:
    backend = SimulatedBackend("worker-3", lose(H200, AT))
    assert backend.signals(AT).lost
    assert backend.samples(AT) == {}
    assert backend.details(AT).minor == 0
    with pytest.raises(CardLost):
        backend.instances(AT)
    with pytest.raises(CardLost):
        backend.set_mig_mode(AT, enabled=True)


# Measurements


def test_a_busy_card_measures_more_than_an_idle_one() -> None:
    backend = SimulatedBackend("worker-3", H200, frozenset({AT}))
    busy, idle = backend.samples(AT), backend.samples(NEXT)
    for measure in (Measure.GPU_TEMP, Measure.POWER_USAGE, Measure.SM_CLOCK, Measure.FB_USED, Measure.TENSOR_ACTIVE):
        assert busy[measure] > idle[measure]
    for samples in (busy, idle):
        memory = samples[Measure.FB_USED] + samples[Measure.FB_FREE] + samples[Measure.FB_RESERVED]
        assert memory == PROFILES["H200-141"].memory_mib


def test_counters_only_grow() -> None:
    time = [100.0]
    backend = SimulatedBackend("worker-3", H200, clock=lambda: time[0])
    before = backend.samples(AT)
    time[0] += 30
    after = backend.samples(AT)
    assert after[Measure.TOTAL_ENERGY] - before[Measure.TOTAL_ENERGY] == 30 * 76 * 1000


def test_an_instance_in_use_is_busy_and_its_neighbour_is_not() -> None:
    backend = SimulatedBackend("worker-3", H200)
    first, second = cut(backend, ("1g.18gb", 0), ("3g.71gb", 4))
    backend.occupy(frozenset(), frozenset({first.uuid}))
    assert backend.samples(AT, first)[Measure.GR_ENGINE_ACTIVE] > 0.5
    assert backend.samples(AT, second)[Measure.GR_ENGINE_ACTIVE] == 0
    assert backend.samples(AT, second)[Measure.FB_FREE] == 71424
