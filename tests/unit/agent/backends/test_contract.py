"""What everybody above relies on, whatever the hardware is. With GPU_TEST_REAL=1 also on the real card of this host.

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
from unit.agent.backends.machine_room import MachineRoom
from unit.agent.vendors.nvidia.fake_nvml import FakeNVML

NOWHERE = "00ff:ff:1f.0"


class Stand(msgspec.Struct, frozen=True):
    """A backend on the test bench, and the machine it looks at where that is made of files."""

    backend: Backend
    has_driver: bool = True
    room: MachineRoom | None = None


def simulated(folder: Path, profile: str = "H200-141") -> Stand:
    return Stand(SimulatedBackend("worker-3", new_machine(profile, 2), device_root=folder))


def faked(folder: Path) -> Stand:
    nvml, room = FakeNVML(cards=2), MachineRoom(folder)
    for card in nvml.cards:
        room.plug(card.address)
    room.make_files("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1")
    capabilities = (
        f"gpu{card}/gi{instance}/{part}access {100 * card + 2 * instance + bool(part)}"
        for card in range(2)
        for instance in range(60)
        for part in ("", "ci0/")
    )
    room.list_capabilities(*capabilities)
    return Stand(NVMLBackend(sysfs=room.host, dev=room.dev, proc=room.proc, nvml=nvml), room=room)


def without_driver(folder: Path) -> Stand:
    room = MachineRoom(folder)
    room.plug("0000:18:00.0")
    room.plug("0000:2a:00.0")
    return Stand(PCIBackend((PCI_VENDOR,), "No driver is installed.", sysfs=room.host), has_driver=False, room=room)


def real(_folder: Path) -> Stand:
    backend = open_backend(DriverSearch(container_roots=container_driver_roots()))
    assert isinstance(backend, NVMLBackend), f"the driver does not answer: {getattr(backend, 'reason', '')}"
    return Stand(backend)


type Builder = Callable[[Path], Stand]

CAN_BE_CUT: dict[str, Builder] = {"simulated": simulated, "nvml": faked}
CANNOT_BE_CUT: dict[str, Builder] = {
    "simulated-L40S": lambda folder: simulated(folder, "L40S"),
    "pci": without_driver,
}
MUST_NOT_BE_CUT: dict[str, Builder] = {"real": real} if os.environ.get("GPU_TEST_REAL") == "1" else {}
ALL = {**CAN_BE_CUT, **CANNOT_BE_CUT, **MUST_NOT_BE_CUT}


@pytest.fixture(params=[*ALL])
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stand]:
    made = ALL[request.param](tmp_path)
    made.backend.open()
    yield made
    made.backend.close()


@pytest.fixture
def backend(stand: Stand) -> Backend:
    return stand.backend


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


on_a_bus = pytest.mark.parametrize("stand", ["nvml", "pci"], indirect=True)


@on_a_bus
def test_virtual_functions_count_nowhere(stand: Stand, address: str) -> None:
    """A host that shares its cards among VMs has dozens of them on its bus, and no driver shows one."""
    before, cards = stand.backend.facts(), stand.backend.cards()
    assert stand.room is not None
    stand.room.split(address, *(f"{address[:-2]}.{function}" for function in range(1, 8)))
    assert (stand.backend.facts(), stand.backend.cards()) == (before, cards)


@on_a_bus
def test_a_bus_that_cannot_be_read_is_not_published_as_an_empty_one(stand: Stand) -> None:
    assert stand.room is not None
    stand.room.hide_bus()
    cards, facts = stand.backend.cards(), stand.backend.facts()
    published = NodeFeature(spec=node_feature("worker-3", facts, cards))
    assert read_facts(published).bus is None
    assert facts.bus_cards == len(cards), "nobody is said to be missing"


def test_facts_name_the_driver_if_and_only_if_there_is_one(stand: Stand) -> None:
    facts = stand.backend.facts()
    assert (facts.driver is not None) is stand.has_driver
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


def test_samples_carry_known_names_and_real_numbers(stand: Stand, address: str) -> None:
    stand.backend.samples(address)
    samples = stand.backend.samples(address)
    assert {*samples} <= {*Measure}
    assert all(math.isfinite(value) and value >= 0 for value in samples.values())
    if stand.has_driver:
        assert {Measure.GPU_TEMP, Measure.FB_USED, Measure.POWER_USAGE, Measure.GR_ENGINE_ACTIVE} <= {*samples}


def test_readings_agree_with_samples(stand: Stand, address: str) -> None:
    readings, samples = stand.backend.readings(address), stand.backend.samples(address)
    assert (readings.temperature is not None) is (Measure.GPU_TEMP in samples) is stand.has_driver

    def agree() -> bool:
        return stand.backend.readings(address).memory_used == stand.backend.samples(address).get(Measure.FB_USED)

    assert any(agree() for _ in range(100)), "a real card may be letting go of memory at the first look"


def test_waiting_ends_when_the_time_is_up(backend: Backend) -> None:
    began = time.monotonic()
    assert backend.wait(0.05) == frozenset()
    assert 0.04 <= time.monotonic() - began < 60


def test_device_files_are_where_programs_expect_them(stand: Stand, address: str) -> None:
    files = (*stand.backend.control_files(), *stand.backend.device_files(address))
    assert all(file.path.startswith("/dev/") for file in files)
    assert bool(files) is stand.has_driver
    minor = stand.backend.details(address).minor
    if minor is not None:
        assert files[len(stand.backend.control_files())].path == f"/dev/nvidia{minor}"


def test_there_are_no_instances_while_mig_is_off(backend: Backend) -> None:
    for card in backend.cards():
        if card.mig is None or not card.mig.enabled:
            assert backend.instances(card.pci.address) == ()


cuts = pytest.mark.parametrize("stand", [*CAN_BE_CUT], indirect=True)


@pytest.fixture
def cutting(stand: Stand, address: str) -> Backend:
    stand.backend.set_mig_mode(address, enabled=True)
    return stand.backend


@pytest.mark.parametrize("stand", [*CANNOT_BE_CUT], indirect=True)
def test_cards_that_cannot_be_cut_say_so(backend: Backend, address: str) -> None:
    for enabled in (True, False):
        with pytest.raises((NotSupported, DriverUnavailable)):
            backend.set_mig_mode(address, enabled=enabled)
    with pytest.raises((NotSupported, DriverUnavailable)):
        backend.create_instance(address, "1g.18gb", 0)


@cuts
def test_mig_is_on_when_it_was_switched_on(cutting: Backend, address: str) -> None:
    modes = {card.pci.address: card.mig.enabled for card in cutting.cards() if card.mig}
    assert modes.pop(address)
    assert not any(modes.values()), "the other cards are as they were"


@cuts
def test_every_profile_fits_at_every_place_it_names(cutting: Backend, address: str) -> None:
    mig = cutting.cards()[0].mig
    assert mig is not None
    for profile in mig.profiles:
        for start in profile.starts:
            made = cutting.create_instance(address, profile.name, start)
            assert (made.profile, made.start, made.size) == (profile.name, start, profile.slices)
            assert cutting.instances(address) == (made,)
            cutting.destroy_instance(address, made)
            assert cutting.instances(address) == ()


@cuts
def test_an_instance_has_files_of_its_own_and_a_few_measurements(cutting: Backend, address: str) -> None:
    first = cutting.create_instance(address, "1g.18gb", 0)
    second = cutting.create_instance(address, "1g.18gb", 1)
    files = [cutting.instance_files(address, instance) for instance in (first, second)]
    assert all(file.path.startswith("/dev/nvidia-caps/nvidia-cap") for pair in files for file in pair)
    assert len({file.path for pair in files for file in pair}) == 4
    cutting.samples(address, first)
    assert {Measure.FB_USED, Measure.GR_ENGINE_ACTIVE} <= {*cutting.samples(address, first)} <= {*Measure}


@cuts
def test_instances_come_in_the_order_of_their_places(cutting: Backend, address: str) -> None:
    for profile, start in (("3g.71gb", 4), ("1g.18gb", 3), ("2g.35gb", 0)):
        cutting.create_instance(address, profile, start)
    assert [instance.start for instance in cutting.instances(address)] == [0, 3, 4]


@cuts
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
    cutting: Backend, address: str, held: tuple[str, int], wanted: tuple[str, int]
) -> None:
    kept = cutting.create_instance(address, *held)
    with pytest.raises(NoRoom):
        cutting.create_instance(address, *wanted)
    assert cutting.instances(address) == (kept,)


@cuts
def test_a_place_that_a_profile_does_not_name_is_refused(cutting: Backend, address: str) -> None:
    with pytest.raises(NoRoom):
        cutting.create_instance(address, "3g.71gb", 2)


@cuts
def test_a_profile_that_a_card_does_not_have_is_refused(cutting: Backend, address: str) -> None:
    with pytest.raises(NotSupported):
        cutting.create_instance(address, "1g.5gb", 0)


@cuts
def test_a_card_with_instances_keeps_its_mode(cutting: Backend, address: str) -> None:
    instance = cutting.create_instance(address, "1g.18gb", 0)
    with pytest.raises(InUse):
        cutting.set_mig_mode(address, enabled=False)
    cutting.destroy_instance(address, instance)
    cutting.set_mig_mode(address, enabled=False)
    assert not any(card.mig.enabled for card in cutting.cards() if card.mig)


@cuts
def test_an_instance_that_is_gone_cannot_be_destroyed_again(cutting: Backend, address: str) -> None:
    instance = cutting.create_instance(address, "1g.18gb", 0)
    cutting.destroy_instance(address, instance)
    again = cutting.create_instance(address, "1g.18gb", 0)
    with pytest.raises(BackendError):
        cutting.destroy_instance(address, instance)
    assert cutting.instances(address) == (again,)


@cuts
def test_instances_outlive_whoever_cut_them(cutting: Backend, address: str) -> None:
    cutting.create_instance(address, "2g.35gb", 4)
    before: tuple[Instance, ...] = cutting.instances(address)
    cutting.close()
    cutting.open()
    assert cutting.instances(address) == before
