"""A second vendor is a folder: with that alone its cards are found, advertised, injected, labelled and judged."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpu_control_plane.agent import vendors
from gpu_control_plane.agent.backends.interface import Backend, DriverUnavailable
from gpu_control_plane.agent.backends.pci import PCIBackend
from gpu_control_plane.agent.cdi.container_allocation import runtime_allocation
from gpu_control_plane.agent.cdi.injectable import injectable_devices
from gpu_control_plane.agent.cdi.spec import card_name
from gpu_control_plane.agent.discovery.bus import BusPoller
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.exporter.series import labelled_card
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot, probe_hardware
from gpu_control_plane.agent.health import WORKS
from gpu_control_plane.agent.step import KubeletSnapshot, NodeMemory, NodePlan, NodeSnapshot, decide
from gpu_control_plane.agent.step.pausing import pause_reason
from gpu_control_plane.agent.vendors.interface import LabelFacts
from gpu_control_plane.agent.vendors.nvidia.support import NVIDIA
from gpu_control_plane.agent.vendors.registry import (
    on_bus,
    open_backend,
    pci_vendors,
    support_of,
    supported,
)
from gpu_control_plane.agent.views import NodeStateView, NodeStatus, NodeView
from gpu_control_plane.api.gpudevice import Vendor
from gpu_control_plane.api.gpunodestate import Assignment, NodeStateSpec
from gpu_control_plane.kube.objects import ObjectMeta
from unit.agent.backends.fake_machine import FakeMachine
from unit.agent.cdi.builders import make_node, needs_root
from unit.agent.step.builders import NODE, NOW, RESOURCE, device, exclusive, first

HERE, THERE = "0000:18:00.0", "0000:2a:00.0"
ACME = Vendor.AMD
"""The API knows three vendors; the toy borrows the name of one that has no folder yet."""


@pytest.fixture(autouse=True)
def _second_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendors, "__path__", [*vendors.__path__, str(Path(__file__).parent / "second")])


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """A machine with one of Acme's cards."""
    machine = FakeMachine(tmp_path / "machine")
    machine.plug(HERE, vendor="1002", device="74a1", class_="1200")
    return machine


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """The folder of Acme's driver."""
    folder = tmp_path / "root/acme"
    folder.mkdir(parents=True)
    (folder / "version").write_text("7.1")
    (folder / HERE).write_text("42")
    return folder


@pytest.fixture
def search(tmp_path: Path) -> DriverSearch:
    return DriverSearch(driver_roots=(tmp_path / "root",))


@pytest.fixture
def backend(machine: FakeMachine, driver: Path, search: DriverSearch) -> Iterator[Backend]:
    opened = open_backend(search, machine.host)
    yield opened
    opened.close()


def test_both_vendors_are_found_by_their_folders() -> None:
    assert [*supported()] == [ACME, Vendor.NVIDIA]


def test_the_bus_chooses_and_no_other_vendors_driver_is_touched(
    backend: Backend, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NVIDIA, "open_backend", None)
    assert [support.vendor for support in on_bus(machine.host)] == [ACME]
    (card,) = backend.cards()
    assert (card.vendor, card.uuid, card.product) == (ACME, "ACME-42", "AMD MI300X")


def test_the_vendor_with_the_most_cards_is_tried_first(machine: FakeMachine) -> None:
    machine.plug("0000:3a:00.0")
    assert [support.vendor for support in on_bus(machine.host)] == [ACME, Vendor.NVIDIA]
    machine.plug("0000:3b:00.0")
    assert [support.vendor for support in on_bus(machine.host)] == [Vendor.NVIDIA, ACME]


def test_without_its_driver_the_bus_is_shown_with_the_reason(machine: FakeMachine, search: DriverSearch) -> None:
    shown = open_backend(search, machine.host)
    assert isinstance(shown, PCIBackend)
    assert [card.product for card in shown.cards()] == ["AMD MI300X"]
    with pytest.raises(DriverUnavailable, match="Acme's driver is not installed"):
        shown.set_mig_mode(HERE, enabled=True)


async def test_discovery_shows_cards_of_every_vendor(machine: FakeMachine) -> None:
    machine.plug(THERE)
    bus = BusPoller(machine.host, pci_vendors(), lambda: None)
    await bus.poll()
    assert [card.address for card in bus.cards or ()] == [HERE, THERE]


@needs_root
def test_containers_get_the_card_and_the_vendors_files(backend: Backend, search: DriverSearch, tmp_path: Path) -> None:
    make_node(tmp_path / "dev/acme0", 7, major=240)
    support = support_of(ACME)
    found = injectable_devices(backend, support.container_edits("7.1", search, hooks=True), HostPaths(tmp_path))
    (only,) = found.injectable
    assert only.device.name == card_name("ACME-42")
    assert [(node.path, node.major) for node in only.device.container_edits.device_nodes] == [("/dev/acme0", 240)]
    assert [mount.host_path for mount in found.common.mounts] == ["/usr/lib/libacme.so.7.1"]
    assert support.visible_devices is not None
    assert runtime_allocation(found.injectable, support.visible_devices).envs == {"ACME_VISIBLE_DEVICES": "ACME-42"}


def test_the_node_gets_the_vendors_labels_and_metrics_its_device_name(backend: Backend) -> None:
    facts = LabelFacts(cards=backend.cards())
    assert [support.labels(facts, {}, 0.0) for support in supported().values()] == [{"acme.example/cards": "1"}, {}]
    (card,) = backend.cards()
    described = labelled_card(card, backend.details(HERE), (), hostname="worker-3", driver_version="7.1")
    assert 'device="acme0"' in described.labels


def step(
    found: HardwareSnapshot, memory: NodeMemory, *orders: Assignment, allocatable: Mapping[str, str] | None = None
) -> NodePlan:
    """One step of the node, as the agent makes it."""
    snapshot = NodeSnapshot(
        now=NOW,
        monotonic=0.0,
        node=NodeView(metadata=ObjectMeta(name=NODE), status=NodeStatus(allocatable=dict(allocatable or {}))),
        state=NodeStateView(metadata=ObjectMeta(name=NODE), spec=NodeStateSpec(assignments=orders)),
        devices=tuple(device(card) for card in found.observed.values()),
        hardware=found,
        kubelet=KubeletSnapshot(),
        injectable=frozenset(found.by_uuid()),
    )
    return decide(snapshot, memory)


def test_ordered_cards_are_advertised(backend: Backend) -> None:
    found = probe_hardware(NODE, backend, probe=1)
    plan = step(found, NodeMemory(), exclusive(first(found).id))
    assert {name: [device.id for device in devices] for name, devices in plan.device_lists.items()} == {
        RESOURCE: ["ACME-42"]
    }


def test_health_follows_the_vendors_error_codes(backend: Backend, driver: Path) -> None:
    (driver / f"{HERE}.errors").write_text("1")
    plan = step(probe_hardware(NODE, backend, probe=1), NodeMemory())
    assert [*plan.memory.verdicts.values()] == [WORKS], "a program's fault"
    (driver / f"{HERE}.errors").write_text("1 9")
    plan = step(probe_hardware(NODE, backend, probe=2), plan.memory)
    (found,) = plan.memory.verdicts.values()
    assert (found.healthy, found.reason, found.message) == (False, "Acme9", "Acme error 9: send the card back.")


def test_other_plugins_and_driver_managers_are_known_by_the_vendors_names(backend: Backend) -> None:
    found = probe_hardware(NODE, backend, probe=1)
    plan = step(found, NodeMemory(), allocatable={"acme.example/gpu": "8", "nvidia.com/gpu": "8"})
    assert plan.plugin is not None
    assert plan.plugin.conflicts == ("acme.example/gpu",)
    assert pause_reason({"acme.example/deploy.driver": "paused-for-upgrade"}) == "paused-for-upgrade"


def test_the_driver_is_checked_by_the_vendor(backend: Backend, search: DriverSearch) -> None:
    checks = support_of(ACME).checks(search, None, ())
    assert checks.check_driver(backend).version == "7.1"
    assert (support_of(ACME).kernel_step, checks.status_files, checks.check_extras()) == (None, None, {})
