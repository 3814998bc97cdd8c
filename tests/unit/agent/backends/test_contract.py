"""The contract of backends, whatever the hardware is. With GPU_TEST_REAL=1 also on the real card of this host.

MIG is never touched on a real card.
"""

import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gpu_control_plane.agent.backends.interface import (
    Backend,
    BackendError,
    CardLost,
    DriverUnavailable,
    Instance,
    InUse,
    NoRoom,
    NotSupported,
    Readings,
)
from gpu_control_plane.agent.backends.measures import Measure
from gpu_control_plane.agent.backends.pci import PCIBackend
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import new_machine
from gpu_control_plane.agent.vendors.nvidia.nvml import NVMLBackend
from gpu_control_plane.agent.vendors.nvidia.pci import PCI_VENDOR
from gpu_control_plane.agent.vendors.registry import container_driver_roots, open_backend
from gpu_control_plane.api.identity import canonical_pci_address
from gpu_control_plane.api.nodefeature import NodeFeature, node_feature, read_cards, read_facts
from unit.agent.backends.fake_machine import FakeMachine
from unit.agent.vendors.nvidia.fake_nvml import FakeNVML

NOWHERE = "00ff:ff:1f.0"


class BackendUnderTest(msgspec.Struct, frozen=True):
    """A backend on the test bench, and the machine it looks at where that is made of files."""

    backend: Backend
    has_driver: bool = True
    machine: FakeMachine | None = None


def simulated(folder: Path, profile: str = "H200-141") -> BackendUnderTest:
    return BackendUnderTest(SimulatedBackend("worker-3", new_machine(profile, 2), device_root=folder))


def faked(folder: Path) -> BackendUnderTest:
    nvml, machine = FakeNVML(cards=2), FakeMachine(folder)
    for card in nvml.cards:
        machine.plug(card.address)
    machine.make_files("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1")
    capabilities = (
        f"gpu{card}/gi{instance}/{part}access {100 * card + 2 * instance + bool(part)}"
        for card in range(2)
        for instance in range(60)
        for part in ("", "ci0/")
    )
    machine.list_capabilities(*capabilities)
    return BackendUnderTest(
        NVMLBackend(sysfs=machine.host, dev=machine.dev, proc=machine.proc, nvml=nvml), machine=machine
    )


def without_driver(folder: Path) -> BackendUnderTest:
    machine = FakeMachine(folder)
    machine.plug("0000:18:00.0")
    machine.plug("0000:2a:00.0")
    return BackendUnderTest(
        PCIBackend((PCI_VENDOR,), "No driver is installed.", sysfs=machine.host), has_driver=False, machine=machine
    )


def real(_folder: Path) -> BackendUnderTest:
    backend = open_backend(DriverSearch(container_roots=container_driver_roots()))
    assert isinstance(backend, NVMLBackend), f"the driver does not answer: {getattr(backend, 'reason', '')}"
    return BackendUnderTest(backend)


type Builder = Callable[[Path], BackendUnderTest]

PARTITIONABLE: dict[str, Builder] = {"simulated": simulated, "nvml": faked}
NOT_PARTITIONABLE: dict[str, Builder] = {
    "simulated-L40S": lambda folder: simulated(folder, "L40S"),
    "pci": without_driver,
}
REAL: dict[str, Builder] = {"real": real} if os.environ.get("GPU_TEST_REAL") == "1" else {}
ALL = {**PARTITIONABLE, **NOT_PARTITIONABLE, **REAL}


@pytest.fixture(params=[*ALL])
def tested(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BackendUnderTest]:
    made = ALL[request.param](tmp_path)
    made.backend.open()
    yield made
    made.backend.close()


@pytest.fixture
def backend(tested: BackendUnderTest) -> Backend:
    return tested.backend


@pytest.fixture
def address(backend: Backend) -> str:
    return backend.cards()[0].pci.address


def test_opening_and_closing_twice_is_no_error(backend: Backend) -> None:
    backend.open()
    before = backend.cards()
    backend.close()
    backend.close()
    backend.open()
    assert backend.cards() == before


def test_nothing_of_the_driver_is_open_after_closing(backend: Backend) -> None:
    for card in backend.cards():
        backend.samples(card.pci.address)
    backend.wait(0.01)
    backend.close()
    held = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [path for path in held if path.match("/dev/nvidia*")]


def test_cards_come_in_the_order_of_their_addresses(backend: Backend) -> None:
    addresses = [card.pci.address for card in backend.cards()]
    assert addresses == sorted(set(addresses))
    assert addresses == [canonical_pci_address(address) for address in addresses]
    assert backend.facts().bus_cards >= len(addresses) >= 1


def test_the_bus_shows_every_card_where_it_can_be_read(backend: Backend) -> None:
    facts = backend.facts()
    assert facts.bus is not None
    assert {card.pci for card in backend.cards()} <= set(facts.bus)
    assert len(facts.bus) == facts.bus_cards


on_a_bus = pytest.mark.parametrize("tested", ["nvml", "pci"], indirect=True)


@on_a_bus
def test_virtual_functions_count_nowhere(tested: BackendUnderTest, address: str) -> None:
    """A host that shares its cards among VMs has dozens of them on its bus, and no driver shows one."""
    before, cards = tested.backend.facts(), tested.backend.cards()
    assert tested.machine is not None
    tested.machine.split(address, *(f"{address[:-2]}.{function}" for function in range(1, 8)))
    assert (tested.backend.facts(), tested.backend.cards()) == (before, cards)


@on_a_bus
def test_a_bus_that_cannot_be_read_is_not_published_as_an_empty_one(tested: BackendUnderTest) -> None:
    assert tested.machine is not None
    tested.machine.hide_bus()
    cards, facts = tested.backend.cards(), tested.backend.facts()
    published = NodeFeature(spec=node_feature("worker-3", facts, cards))
    assert read_facts(published).bus is None
    assert facts.bus_cards == len(cards), "no card is reported as missing"


def test_facts_name_the_driver_if_and_only_if_there_is_one(tested: BackendUnderTest) -> None:
    facts = tested.backend.facts()
    assert (facts.driver is not None) is tested.has_driver
    assert facts.boot_id
    assert facts.agent_version


def test_what_is_reported_survives_being_published(backend: Backend) -> None:
    published = NodeFeature(spec=node_feature("worker-3", backend.facts(), backend.cards()))
    assert read_cards(published) == backend.cards()
    assert read_facts(published) == backend.facts()


def test_every_card_has_details_and_numbers_of_its_own(backend: Backend) -> None:
    details = [backend.details(card.pci.address) for card in backend.cards()]
    assert len({detail.index for detail in details}) == len(details)


def test_links_lead_to_the_peers(backend: Backend) -> None:
    for card in backend.cards():
        assert tuple(sorted(backend.details(card.pci.address).links)) == card.nvlink_peers


def test_a_card_that_works_has_nothing_to_report(backend: Backend, address: str) -> None:
    signals = backend.signals(address)
    assert (signals.lost, signals.xids, signals.remap_failed) == (False, (), False)


def test_a_card_that_is_not_there_is_lost_and_measures_nothing(backend: Backend) -> None:
    assert backend.signals(NOWHERE).lost
    assert backend.readings(NOWHERE) == Readings()
    assert backend.samples(NOWHERE) == {}
    assert backend.processes(NOWHERE) == ()
    with pytest.raises(CardLost):
        backend.details(NOWHERE)


def test_clearing_a_card_without_reports_is_no_error(backend: Backend, address: str) -> None:
    backend.clear(address)
    assert backend.signals(address).xids == ()


def test_samples_carry_known_names_and_real_numbers(tested: BackendUnderTest, address: str) -> None:
    tested.backend.samples(address)
    samples = tested.backend.samples(address)
    assert {*samples} <= {*Measure}
    assert all(math.isfinite(value) and value >= 0 for value in samples.values())
    if tested.has_driver:
        assert {Measure.GPU_TEMP, Measure.FB_USED, Measure.POWER_USAGE, Measure.GR_ENGINE_ACTIVE} <= {*samples}


def test_readings_agree_with_samples(tested: BackendUnderTest, address: str) -> None:
    readings, samples = tested.backend.readings(address), tested.backend.samples(address)
    assert (readings.temperature is not None) is (Measure.GPU_TEMP in samples) is tested.has_driver

    def agree() -> bool:
        return tested.backend.readings(address).memory_used == tested.backend.samples(address).get(Measure.FB_USED)

    assert any(agree() for _ in range(100)), "a real card may be freeing memory at the first reading"


def test_waiting_ends_when_the_time_is_up(backend: Backend) -> None:
    began = time.monotonic()
    assert backend.wait(0.05) == frozenset()
    assert 0.04 <= time.monotonic() - began < 60


def test_device_files_are_where_programs_expect_them(tested: BackendUnderTest, address: str) -> None:
    files = (*tested.backend.control_files(), *tested.backend.device_files(address))
    assert all(file.path.startswith("/dev/") for file in files)
    assert bool(files) is tested.has_driver
    minor = tested.backend.details(address).minor
    if minor is not None:
        assert files[len(tested.backend.control_files())].path == f"/dev/nvidia{minor}"


def test_there_are_no_instances_while_mig_is_off(backend: Backend) -> None:
    for card in backend.cards():
        if card.mig is None or not card.mig.enabled:
            assert backend.instances(card.pci.address) == ()


can_be_partitioned = pytest.mark.parametrize("tested", [*PARTITIONABLE], indirect=True)


@pytest.fixture
def partitioned(tested: BackendUnderTest, address: str) -> Backend:
    tested.backend.set_mig_mode(address, enabled=True)
    return tested.backend


@pytest.mark.parametrize("tested", [*NOT_PARTITIONABLE], indirect=True)
def test_cards_that_cannot_be_cut_say_so(backend: Backend, address: str) -> None:
    for enabled in (True, False):
        with pytest.raises((NotSupported, DriverUnavailable)):
            backend.set_mig_mode(address, enabled=enabled)
    with pytest.raises((NotSupported, DriverUnavailable)):
        backend.create_instance(address, "1g.18gb", 0)


@can_be_partitioned
def test_mig_is_on_when_it_was_switched_on(partitioned: Backend, address: str) -> None:
    modes = {card.pci.address: card.mig.enabled for card in partitioned.cards() if card.mig}
    assert modes.pop(address)
    assert not any(modes.values()), "the other cards are as they were"


@can_be_partitioned
def test_every_profile_fits_at_every_place_it_names(partitioned: Backend, address: str) -> None:
    mig = partitioned.cards()[0].mig
    assert mig is not None
    for profile in mig.profiles:
        for start in profile.starts:
            made = partitioned.create_instance(address, profile.name, start)
            assert (made.profile, made.start, made.size) == (profile.name, start, profile.slices)
            assert partitioned.instances(address) == (made,)
            partitioned.destroy_instance(address, made)
            assert partitioned.instances(address) == ()


@can_be_partitioned
def test_an_instance_has_files_of_its_own_and_a_few_measurements(partitioned: Backend, address: str) -> None:
    first = partitioned.create_instance(address, "1g.18gb", 0)
    second = partitioned.create_instance(address, "1g.18gb", 1)
    files = [partitioned.instance_files(address, instance) for instance in (first, second)]
    assert all(file.path.startswith("/dev/nvidia-caps/nvidia-cap") for pair in files for file in pair)
    assert len({file.path for pair in files for file in pair}) == 4
    partitioned.samples(address, first)
    assert {Measure.FB_USED, Measure.GR_ENGINE_ACTIVE} <= {*partitioned.samples(address, first)} <= {*Measure}


@can_be_partitioned
def test_instances_come_in_the_order_of_their_places(partitioned: Backend, address: str) -> None:
    for profile, start in (("3g.71gb", 4), ("1g.18gb", 3), ("2g.35gb", 0)):
        partitioned.create_instance(address, profile, start)
    assert [instance.start for instance in partitioned.instances(address)] == [0, 3, 4]


@can_be_partitioned
@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (("3g.71gb", 0), ("2g.35gb", 2)),
        (("1g.18gb", 2), ("7g.141gb", 0)),
        (("4g.71gb", 0), ("4g.71gb", 0)),
        (("1g.18gb+me", 0), ("1g.18gb+me", 1)),
    ],
)
def test_what_does_not_fit_is_refused(
    partitioned: Backend, address: str, held: tuple[str, int], wanted: tuple[str, int]
) -> None:
    kept = partitioned.create_instance(address, *held)
    with pytest.raises(NoRoom):
        partitioned.create_instance(address, *wanted)
    assert partitioned.instances(address) == (kept,)


@can_be_partitioned
def test_a_place_that_a_profile_does_not_name_is_refused(partitioned: Backend, address: str) -> None:
    with pytest.raises(NoRoom):
        partitioned.create_instance(address, "3g.71gb", 2)


@can_be_partitioned
def test_a_profile_that_a_card_does_not_have_is_refused(partitioned: Backend, address: str) -> None:
    with pytest.raises(NotSupported):
        partitioned.create_instance(address, "1g.5gb", 0)


@can_be_partitioned
def test_a_card_with_instances_keeps_its_mode(partitioned: Backend, address: str) -> None:
    instance = partitioned.create_instance(address, "1g.18gb", 0)
    with pytest.raises(InUse):
        partitioned.set_mig_mode(address, enabled=False)
    partitioned.destroy_instance(address, instance)
    partitioned.set_mig_mode(address, enabled=False)
    assert not any(card.mig.enabled for card in partitioned.cards() if card.mig)


@can_be_partitioned
def test_an_instance_that_is_gone_cannot_be_destroyed_again(partitioned: Backend, address: str) -> None:
    instance = partitioned.create_instance(address, "1g.18gb", 0)
    partitioned.destroy_instance(address, instance)
    again = partitioned.create_instance(address, "1g.18gb", 0)
    with pytest.raises(BackendError):
        partitioned.destroy_instance(address, instance)
    assert partitioned.instances(address) == (again,)


@can_be_partitioned
def test_instances_outlive_the_process_that_created_them(partitioned: Backend, address: str) -> None:
    partitioned.create_instance(address, "2g.35gb", 4)
    before: tuple[Instance, ...] = partitioned.instances(address)
    partitioned.close()
    partitioned.open()
    assert partitioned.instances(address) == before
