"""The backend of real cards, over a library that can be made to fail in every way a real one does."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pynvml  # type: ignore[import-untyped]
import pytest

from gpu_control_plane.agent.backends.interface import (
    BackendError,
    CardLost,
    DeviceFile,
    DriverUnavailable,
    InUse,
    NoRoom,
    NotPermitted,
    NotSupported,
    Process,
    Recovery,
)
from gpu_control_plane.agent.backends.measures import Measure
from gpu_control_plane.agent.vendors.nvidia.nvml import NVMLBackend
from gpu_control_plane.agent.vendors.nvidia.nvml.events import MAX_REPORTS
from gpu_control_plane.agent.vendors.nvidia.nvml.library import Library, translated
from gpu_control_plane.agent.vendors.nvidia.nvml.mig_profiles import profile_name
from gpu_control_plane.api.examples import h200
from gpu_control_plane.api.gpunodestate import DriverSource
from unit.agent.backends.fake_machine import BOOT, FakeMachine
from unit.agent.vendors.nvidia.fake_nvml import FakeCard, FakeNVML

XID, UNAVAILABLE = 0x8, 0x4000


class NVMLBench:
    """Two cards in a machine, time that passes when told, and an open backend."""

    def __init__(self, folder: Path) -> None:
        self.nvml = FakeNVML(cards=2)
        self.machine = FakeMachine(folder)
        for card in self.nvml.cards:
            self.machine.plug(card.address)
        self.time = 0.0
        self.backend = NVMLBackend(
            source=DriverSource.HOST,
            sysfs=self.machine.host,
            dev=self.machine.dev,
            proc=self.machine.proc,
            nvml=self.nvml,
            sleep=self.sleep,
            clock=lambda: self.time,
            now=lambda: 1_000_000.0,
        )
        self.backend.open()

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    @property
    def card(self) -> FakeCard:
        return self.nvml.cards[0]

    @property
    def address(self) -> str:
        return self.card.address


@pytest.fixture
def bench(tmp_path: Path) -> NVMLBench:
    return NVMLBench(tmp_path)


# Errors


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (1, DriverUnavailable, "released"),
        (3, NotSupported, "cannot do that"),
        (4, NotPermitted, "root"),
        (9, DriverUnavailable, "modprobe nvidia"),
        (12, DriverUnavailable, "Install the NVIDIA driver"),
        (13, NotSupported, "Upgrade"),
        (15, CardLost, "Restart the node"),
        (16, CardLost, "Reset it"),
        (18, DriverUnavailable, "Reload the kernel module"),
        (19, InUse, "Stop that program"),
        (23, NoRoom, "no place left"),
        (28, CardLost, "no longer knows"),
        (999, BackendError, "NVML error 999"),
    ],
)
def test_error_codes_become_sentences_that_say_what_to_do(code: int, kind: type[BackendError], advice: str) -> None:
    error = translated(pynvml.NVMLError(code))
    assert type(error) is kind or issubclass(type(error), CardLost)
    assert isinstance(error, kind)
    assert advice in str(error)


@pytest.mark.parametrize("code", [9, 12, 18])
def test_without_a_driver_there_is_nothing_to_open(code: int) -> None:
    nvml = FakeNVML()
    nvml.init_error = code
    with pytest.raises(DriverUnavailable):
        NVMLBackend(nvml=nvml).open()


def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "libnvidia-ml.so.1"
    broken.write_text("no library")
    with pytest.raises(DriverUnavailable, match=str(broken)):
        Library(broken, FakeNVML()).open()


def test_every_call_on_a_closed_backend_says_that_the_driver_was_let_go_of(bench: NVMLBench) -> None:
    bench.backend.close()
    for call in (bench.backend.cards, bench.backend.facts):
        with pytest.raises(DriverUnavailable):
            call()
    for ask in (bench.backend.signals, bench.backend.readings, bench.backend.samples, bench.backend.details):
        with pytest.raises(DriverUnavailable):
            ask(bench.address)


def test_closing_gives_everything_back(bench: NVMLBench) -> None:
    bench.backend.samples(bench.address)
    bench.backend.samples(bench.address)
    bench.backend.close()
    assert (bench.nvml.running, bench.nvml.held) == (0, 0)


def test_the_library_stays_while_another_part_of_the_agent_uses_it() -> None:
    nvml = FakeNVML()
    first, second = Library(nvml=nvml), Library(nvml=nvml)
    first.open()
    second.open()
    nvml._nvmlGetFunctionPointer_cache["nvmlInit"] = object()
    first.close()
    assert nvml._nvmlGetFunctionPointer_cache
    second.close()
    assert not nvml._nvmlGetFunctionPointer_cache
    assert nvml.running == 0


# Inventory


def test_a_card_is_what_the_real_one_says_of_itself(bench: NVMLBench) -> None:
    card, known = bench.backend.cards()[0], h200("worker-3", 0)
    assert (card.product, card.memory_mib, card.architecture, card.compute_capability, card.mig) == (
        known.product,
        known.memory_mib,
        known.architecture,
        known.compute_capability,
        known.mig,
    )
    assert (card.uuid, card.pci.device, card.pci.class_) == (bench.card.uuid, "2335", "0302")


def test_facts_come_from_the_driver_and_the_kernel(bench: NVMLBench) -> None:
    facts = bench.backend.facts()
    assert facts.driver is not None
    assert (facts.driver.version, facts.driver.cuda_version, facts.driver.source) == (
        "580.159.04",
        "13.0",
        DriverSource.HOST,
    )
    assert (facts.boot_id, facts.bus_cards, facts.toolkit) == (BOOT, 2, None)


def test_what_one_card_cannot_tell_leaves_the_rest(bench: NVMLBench) -> None:
    for function in ("Serial", "Architecture", "CudaComputeCapability", "MemoryInfo", "MigMode", "MinorNumber"):
        bench.card.answers[f"nvmlDeviceGet{function}"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    card = bench.backend.cards()[0]
    details = bench.backend.details(bench.address)
    assert (card.memory_mib, card.compute_capability, card.architecture, card.mig) == (None, None, None, None)
    assert (details.serial, details.minor) == (None, None)
    assert (card.uuid, card.product) == (bench.card.uuid, "NVIDIA H200")


def test_the_place_of_a_card_comes_from_sysfs(bench: NVMLBench) -> None:
    bench.machine.unplug(bench.nvml.cards[1].address)
    bench.machine.plug("0009:01:00.0", numa="1")
    bench.nvml.cards[1].bus_id = "00000009:01:00.0"
    card = bench.backend.cards()[1]
    assert (card.pci.address, card.numa_node) == ("0009:01:00.0", 1)
    assert bench.backend.details("0009:01:00.0").pci_root == "pci0009:01"


def test_a_card_that_is_lost_where_the_bus_cannot_be_read_is_kept(bench: NVMLBench) -> None:
    """It is not known whether it was removed: left out of the report it would be forgotten, not reported lost."""
    before = [card.uuid for card in bench.backend.cards()]
    bench.machine.hide_bus()
    bench.card.always = pynvml.NVML_ERROR_GPU_IS_LOST
    assert [card.uuid for card in bench.backend.cards()] == before
    assert bench.backend.facts().bus_cards == len(before)
    assert bench.backend.signals(bench.address).lost


def test_a_bus_that_was_read_and_is_empty_is_said_to_be_empty(bench: NVMLBench) -> None:
    for card in bench.nvml.cards:
        bench.machine.unplug(card.address)
    bench.nvml.cards.clear()
    assert bench.backend.cards() == ()
    assert (bench.backend.facts().bus_cards, bench.backend.facts().bus) == (0, ())


def test_a_machine_that_hides_its_bus_still_has_cards(tmp_path: Path) -> None:
    backend = NVMLBackend(sysfs=FakeMachine(tmp_path).host, nvml=FakeNVML(cards=2))
    backend.open()
    cards = backend.cards()
    assert [(card.pci.device, card.pci.vendor, card.numa_node) for card in cards] == [("2335", "10de", None)] * 2
    facts = backend.facts()
    assert (facts.bus_cards, facts.bus) == (2, None)


def test_a_card_that_the_driver_does_not_show_is_on_the_bus_with_its_address(bench: NVMLBench) -> None:
    bench.machine.plug("0009:01:00.0")
    facts = bench.backend.facts()
    assert facts.bus is not None
    shown = {card.pci.address for card in bench.backend.cards()}
    assert {place.address for place in facts.bus} - shown == {"0009:01:00.0"}
    assert facts.bus_cards == len(shown) + 1


def test_direct_links_are_counted_for_each_peer(bench: NVMLBench) -> None:
    for card, other in (bench.nvml.cards, reversed(bench.nvml.cards)):
        card.links = dict.fromkeys(range(4), other.bus_id)
    assert bench.backend.cards()[0].nvlink_peers == (bench.nvml.cards[1].address,)
    assert bench.backend.details(bench.address).links == {bench.nvml.cards[1].address: 4}


def test_links_into_a_switch_lead_to_every_card_behind_it(bench: NVMLBench) -> None:
    for card in bench.nvml.cards:
        card.links = dict.fromkeys(range(18), "00000000:83:00.0")
    bench.backend.cards()
    assert bench.backend.details(bench.address).links == {bench.nvml.cards[1].address: 18}


# MIG


@pytest.mark.parametrize(
    ("total_mib", "names"),
    [
        (40960, {19: ("1g.5gb", 1, 4.75), 15: ("1g.10gb", 1, 9.62), 14: ("2g.10gb", 2, 9.62), 9: ("3g.20gb", 3, 19.5),
                 5: ("4g.20gb", 4, 19.5), 0: ("7g.40gb", 7, 39.25)}),
        (81920, {19: ("1g.10gb", 1, 9.5), 15: ("1g.20gb", 1, 19.5), 14: ("2g.20gb", 2, 19.5), 9: ("3g.40gb", 3, 39.25),
                 5: ("4g.40gb", 4, 39.25), 0: ("7g.80gb", 7, 78.5)}),
        (81559, {19: ("1g.10gb", 1, 9.75), 15: ("1g.20gb", 1, 19.62), 14: ("2g.20gb", 2, 19.62),
                 9: ("3g.40gb", 3, 39.5), 5: ("4g.40gb", 4, 39.5), 0: ("7g.80gb", 7, 79.25)}),
        (97871, {19: ("1g.12gb", 1, 11.0), 15: ("1g.24gb", 1, 23.0), 14: ("2g.24gb", 2, 23.0), 9: ("3g.48gb", 3, 46.5),
                 5: ("4g.48gb", 4, 46.5), 0: ("7g.96gb", 7, 93.0)}),
        (143771, {19: ("1g.18gb", 1, 16.0), 15: ("1g.35gb", 1, 32.5), 14: ("2g.35gb", 2, 32.5),
                  9: ("3g.71gb", 3, 69.75), 5: ("4g.71gb", 4, 69.75), 0: ("7g.141gb", 7, 140.0)}),
        (183359, {19: ("1g.23gb", 1, 20.5), 15: ("1g.45gb", 1, 44.25), 14: ("2g.45gb", 2, 44.25),
                  9: ("3g.90gb", 3, 89.0), 5: ("4g.90gb", 4, 89.0), 0: ("7g.180gb", 7, 179.0)}),
        (24576, {14: ("1g.6gb", 1, 5.81), 5: ("2g.12gb", 2, 11.69), 0: ("4g.24gb", 4, 23.44)}),
    ],
    ids=["A100-40", "A100-80", "H100-80", "GH200-96", "H200", "B200", "A30"],
)  # fmt: skip
def test_profiles_are_called_what_nvidia_calls_them(total_mib: int, names: dict[int, tuple[str, int, float]]) -> None:
    for name, slices, gib in names.values():
        assert profile_name(0, slices, round(gib * 1024), total_mib) == name


@pytest.mark.parametrize(
    ("index", "name"),
    [(0, "1g.18gb"), (7, "1g.18gb+me"), (10, "1g.18gb+gfx"), (13, "1g.18gb-me"), (15, "1g.18gb+me.all")],
)
def test_what_makes_a_profile_special_is_in_its_name(index: int, name: str) -> None:
    assert profile_name(index, 1, 16384, 143771) == name


def test_switching_mig_holds_nothing_of_the_card_and_listens_again_afterwards(bench: NVMLBench) -> None:
    bench.backend.samples(bench.address)
    bench.backend.set_mig_mode(bench.address, enabled=True)
    assert bench.nvml.held == 1, "the new set of events"
    bench.nvml.tell(bench.card, XID, 94)
    assert bench.backend.wait(1) == {bench.address}


def test_a_card_that_a_program_holds_keeps_its_mode(bench: NVMLBench) -> None:
    bench.nvml.in_use.add(bench.card.uuid)
    with pytest.raises(InUse):
        bench.backend.set_mig_mode(bench.address, enabled=True)


def test_an_instance_in_use_stays_whole(bench: NVMLBench) -> None:
    bench.backend.set_mig_mode(bench.address, enabled=True)
    instance = bench.backend.create_instance(bench.address, "2g.35gb", 2)
    bench.nvml.in_use.add(instance.uuid)
    with pytest.raises(InUse):
        bench.backend.destroy_instance(bench.address, instance)
    assert bench.backend.instances(bench.address) == (instance,)


def test_half_an_instance_is_taken_back_when_the_other_half_fails(bench: NVMLBench) -> None:
    bench.backend.set_mig_mode(bench.address, enabled=True)
    bench.nvml.fail_compute_instance = True
    with pytest.raises(NoRoom):
        bench.backend.create_instance(bench.address, "1g.18gb", 0)
    assert not bench.card.gpu_instances


def test_half_an_instance_of_an_agent_that_died_is_cleared_away(bench: NVMLBench) -> None:
    bench.backend.set_mig_mode(bench.address, enabled=True)
    kept = bench.backend.create_instance(bench.address, "1g.18gb", 6)
    placement = pynvml.c_nvmlGpuInstancePlacement_t(start=0, size=4)
    bench.nvml.nvmlDeviceCreateGpuInstanceWithPlacement(bench.card.bus_id, 9, pynvml.byref(placement))
    assert bench.backend.instances(bench.address) == (kept,)
    made = bench.backend.create_instance(bench.address, "4g.71gb", 0)
    assert bench.backend.instances(bench.address) == (made, kept)


# Health


def test_an_error_report_is_kept_until_it_is_cleared(bench: NVMLBench) -> None:
    bench.nvml.tell(bench.card, XID, 31)
    bench.nvml.tell(bench.card, XID, 79)
    assert bench.backend.wait(1) == {bench.address}
    assert bench.backend.signals(bench.address).xids == (31, 79)
    assert bench.backend.samples(bench.address)[Measure.XID_ERRORS] == 79
    bench.backend.clear(bench.address)
    assert bench.backend.signals(bench.address).xids == ()
    assert bench.backend.samples(bench.address)[Measure.XID_ERRORS] == 0


def test_error_reports_do_not_grow_for_ever(bench: NVMLBench) -> None:
    for code in range(100):
        bench.nvml.tell(bench.card, XID, code)
        bench.backend.wait(1)
    assert bench.backend.signals(bench.address).xids == tuple(range(100 - MAX_REPORTS, 100))


def test_news_of_several_cards_come_together(bench: NVMLBench) -> None:
    for card in bench.nvml.cards:
        bench.nvml.tell(card, UNAVAILABLE)
    assert bench.backend.wait(1) == {card.address for card in bench.nvml.cards}


def test_only_events_that_a_card_knows_are_asked_for(tmp_path: Path) -> None:
    nvml = FakeNVML(cards=2)
    nvml.cards[0].readings["health"]["supportedEventTypes"] = 0x9F
    nvml.cards[1].answers["nvmlDeviceGetSupportedEventTypes"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    backend = NVMLBackend(sysfs=FakeMachine(tmp_path).host, nvml=nvml)
    backend.open()
    assert nvml.registered == {nvml.cards[0].bus_id: 0x1 | 0x2 | XID}


def test_waiting_takes_its_time_where_no_card_tells_anything(tmp_path: Path) -> None:
    nvml = FakeNVML()
    slept: list[float] = []
    nvml.cards[0].answers["nvmlDeviceGetSupportedEventTypes"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    backend = NVMLBackend(
        sysfs=FakeMachine(tmp_path).host, nvml=nvml, sleep=slept.append, clock=lambda: float(sum(slept))
    )
    backend.open()
    assert backend.wait(3) == frozenset()
    assert sum(slept) == pytest.approx(3)


@pytest.mark.parametrize("code", [15, 17, 999])
def test_an_error_while_waiting_has_every_card_looked_at_and_marks_none(bench: NVMLBench, code: int) -> None:
    bench.nvml.events.put(code)
    assert bench.backend.wait(60) == {card.address for card in bench.nvml.cards}
    assert bench.time == pytest.approx(5), "not at once again and again"
    assert not bench.backend.signals(bench.address).lost
    bench.nvml.tell(bench.card, XID, 62)
    assert bench.backend.wait(1) == {bench.address}
    assert bench.nvml.held == 1


def test_a_driver_that_goes_away_while_waiting_is_said_to_be_gone(bench: NVMLBench) -> None:
    bench.nvml.events.put(pynvml.NVML_ERROR_UNINITIALIZED)
    with pytest.raises(DriverUnavailable):
        bench.backend.wait(60)


def test_closing_waits_for_the_one_who_waits(tmp_path: Path) -> None:
    backend = NVMLBackend(sysfs=FakeMachine(tmp_path).host, nvml=FakeNVML())
    backend.open()
    heard: list[frozenset[str]] = []
    waiting = threading.Thread(target=lambda: heard.append(backend.wait(1.2)))
    waiting.start()
    backend.close()
    waiting.join(timeout=60)
    assert heard == [frozenset()]


def test_a_lost_card_stays_in_the_inventory_while_the_bus_shows_it(bench: NVMLBench) -> None:
    before = bench.backend.cards()
    bench.card.always = pynvml.NVML_ERROR_GPU_IS_LOST
    assert bench.backend.cards() == before
    assert bench.backend.signals(bench.address).lost
    assert bench.backend.samples(bench.address) == {}
    assert bench.backend.details(bench.address).minor == 0
    with pytest.raises(CardLost):
        bench.backend.instances(bench.address)
    bench.machine.unplug(bench.address)
    assert bench.backend.cards() == before[1:]


def test_a_card_that_comes_back_is_heard_again(bench: NVMLBench) -> None:
    bench.card.always = pynvml.NVML_ERROR_GPU_IS_LOST
    bench.machine.unplug(bench.address)
    bench.backend.cards()
    bench.nvml.registered.clear()
    bench.card.always = None
    bench.machine.plug(bench.address)
    bench.backend.cards()
    assert bench.card.bus_id in bench.nvml.registered


def test_a_stuck_card_asks_for_a_reset(bench: NVMLBench) -> None:
    bench.card.answers["nvmlDeviceGetRemappedRows"] = pynvml.NVML_ERROR_RESET_REQUIRED
    signals = bench.backend.signals(bench.address)
    assert (signals.lost, signals.recovery) == (False, Recovery.RESET)


def test_signals_are_what_the_driver_counts(bench: NVMLBench) -> None:
    health = bench.card.readings["health"]
    health["ecc"]["volatile"]["dramUncorrectable"] = 2
    health["remappedRows"] |= {"pending": True, "failureOccurred": True}
    signals = bench.backend.signals(bench.address)
    assert (signals.uncorrected_ecc, signals.remap_pending, signals.remap_failed) == (2, True, True)


@pytest.mark.parametrize(
    ("value", "action"),
    [
        (0, Recovery.NONE),
        (4, Recovery.DRAIN_AND_RESET),
        (6, Recovery.RESET),
        (7, Recovery.REBOOT),
        (42, Recovery.REBOOT),
    ],
)
def test_what_the_driver_asks_for_is_passed_on(bench: NVMLBench, value: int, action: Recovery) -> None:
    bench.card.readings["health"]["recoveryAction"]["value"] = value
    assert bench.backend.signals(bench.address).recovery is action


def test_a_card_that_cannot_tell_its_health_is_not_ill(bench: NVMLBench) -> None:
    for function in ("TotalEccErrors", "RemappedRows", "FieldValues", "CurrentClocksEventReasons"):
        bench.card.answers[f"nvmlDeviceGet{function}"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    signals = bench.backend.signals(bench.address)
    assert (signals.lost, signals.uncorrected_ecc, signals.recovery) == (False, 0, Recovery.NONE)


@pytest.mark.parametrize(
    ("reasons", "too_hot"), [(0x40, True), (0x48, True), (0x20, False), (0x8, False), (0x1, False)]
)
def test_only_a_slowdown_by_the_hardware_that_lasts_means_too_hot(
    bench: NVMLBench, reasons: int, too_hot: bool
) -> None:
    bench.card.readings["clocks"]["eventReasons"] = reasons
    assert not bench.backend.signals(bench.address).overheated
    bench.time += 10
    assert bench.backend.signals(bench.address).overheated is too_hot
    bench.card.readings["clocks"]["eventReasons"] = 0x1
    assert not bench.backend.signals(bench.address).overheated
    bench.card.readings["clocks"]["eventReasons"] = reasons
    assert not bench.backend.signals(bench.address).overheated, "it cooled down in between"


# Measurements


def test_samples_are_the_readings_of_the_card_in_dcgms_units(bench: NVMLBench) -> None:
    samples = bench.backend.samples(bench.address)
    assert samples[Measure.POWER_USAGE] == pytest.approx(76.289)
    assert (samples[Measure.FB_FREE], samples[Measure.FB_USED], samples[Measure.FB_RESERVED]) == (143156, 0, 616)
    assert (samples[Measure.SM_CLOCK], samples[Measure.MEM_CLOCK], samples[Measure.MEMORY_TEMP]) == (345, 3201, 32)
    assert samples[Measure.TOTAL_ENERGY] == 3332732
    assert Measure.NVLINK_BANDWIDTH not in samples, "this card does not tell"
    assert Measure.RETIRED_PENDING not in samples


def test_profiling_compares_with_the_last_look(bench: NVMLBench) -> None:
    first, second = bench.backend.samples(bench.address), bench.backend.samples(bench.address)
    assert Measure.GR_ENGINE_ACTIVE not in first
    assert first[Measure.PCIE_TX_BYTES] == 1_054_000
    assert second[Measure.GR_ENGINE_ACTIVE] == 0.5
    assert second[Measure.PCIE_TX_BYTES] == 50 * 2**20
    assert Measure.NVLINK_TX_BYTES not in second, "answered with an error of its own"


def test_memory_is_told_by_old_drivers_too(bench: NVMLBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def old(_self: FakeNVML, handle: str, version: int = 0) -> SimpleNamespace:
        if version:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return SimpleNamespace(total=150754820096, free=150109880320, used=644939776)

    monkeypatch.setattr(FakeNVML, "_nvmlDeviceGetMemoryInfo", old)
    samples = bench.backend.samples(bench.address)
    assert samples[Measure.FB_USED] == 615
    assert Measure.FB_RESERVED not in samples


def test_programs_are_told_with_what_they_use(bench: NVMLBench) -> None:
    bench.backend.set_mig_mode(bench.address, enabled=True)
    instance = bench.backend.create_instance(bench.address, "1g.18gb", 0)
    bench.card.programs = [
        SimpleNamespace(pid=42, usedGpuMemory=7 << 20, gpuInstanceId=instance.gpu_instance),
        SimpleNamespace(pid=7, usedGpuMemory=None, gpuInstanceId=0xFFFFFFFF),
    ]
    assert bench.backend.processes(bench.address) == (
        Process(pid=7, memory_mib=None, utilisation=20),
        Process(pid=42, memory_mib=7, utilisation=20, instance=instance.uuid),
    )


# Device files


def test_only_device_files_that_exist_are_named(bench: NVMLBench) -> None:
    bench.machine.make_files("nvidiactl", "nvidia-uvm")
    bench.machine.give_screen(bench.address, "card1", "renderD129")
    (bench.machine.dev / "dri/card1").unlink()
    dev = bench.machine.dev
    assert bench.backend.control_files() == (
        DeviceFile("/dev/nvidiactl", f"{dev}/nvidiactl"),
        DeviceFile("/dev/nvidia-uvm", f"{dev}/nvidia-uvm"),
    )
    assert bench.backend.device_files(bench.address) == (
        DeviceFile("/dev/nvidia0", f"{dev}/nvidia0"),
        DeviceFile("/dev/dri/renderD129", f"{dev}/dri/renderD129"),
    )


def test_an_instance_is_opened_by_the_capabilities_that_the_driver_lists(bench: NVMLBench) -> None:
    bench.backend.set_mig_mode(bench.address, enabled=True)
    instance = bench.backend.create_instance(bench.address, "1g.18gb", 0)
    place = f"gpu0/gi{instance.gpu_instance}"
    bench.machine.list_capabilities("config 1", "monitor 2", f"{place}/access 30", f"{place}/ci0/access 31")
    files = bench.backend.instance_files(bench.address, instance)
    assert [file.path for file in files] == ["/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31"]
    bench.machine.list_capabilities("config 1")
    with pytest.raises(BackendError, match="lists no capability"):
        bench.backend.instance_files(bench.address, instance)
