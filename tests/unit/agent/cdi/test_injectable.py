from pathlib import Path

import msgspec
import pytest

from gpu_control_plane.agent.backends.interface import DeviceFile
from gpu_control_plane.agent.cdi.edits import Edits
from gpu_control_plane.agent.cdi.injectable import injectable_devices
from gpu_control_plane.agent.cdi.spec import spec
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.vendors.nvidia.injection import container_edits
from unit.agent.cdi.builders import CARD, OTHER, FakeCards, card, instance, make_node, needs_root
from unit.agent.cdi.rules import violations
from unit.agent.driver.trees import VERSION, Tree

pytestmark = needs_root

HERE, THERE = "0000:65:00.0", "0000:66:00.0"
_CONTROL = (DeviceFile("/dev/nvidiactl"), DeviceFile("/dev/nvidia-uvm"))


def _files(minor: int) -> tuple[DeviceFile, ...]:
    return (DeviceFile(f"/dev/nvidia{minor}"),)


@pytest.fixture
def host(tmp_path: Path) -> HostPaths:
    for minor in (0, 1):
        make_node(tmp_path / f"dev/nvidia{minor}", minor)
    for number in (10, 11):
        make_node(tmp_path / f"dev/nvidia-caps/nvidia-cap{number}", number, mode=0o444, major=236)
    make_node(tmp_path / "dev/nvidiactl", 255)
    return HostPaths(tmp_path)


def test_whole_cards_go_by_their_uuid(host: HostPaths) -> None:
    backend = FakeCards([card(CARD, HERE), card(OTHER, THERE)], {HERE: _files(0), THERE: _files(1)})

    described = injectable_devices(backend, Edits(), host)

    assert described.problems == ()
    assert [(one.device.name, one.uuid) for one in described.injectable] == [(CARD, CARD), (OTHER, OTHER)]
    assert [one.device.container_edits.device_nodes[0].minor for one in described.injectable] == [0, 1]


def test_of_a_card_in_mig_mode_only_instances_can_be_injected(host: HostPaths) -> None:
    backend = FakeCards([card(CARD, HERE, mig=True)], {HERE: _files(0)}, instances=[instance()])

    (only,) = injectable_devices(backend, Edits(), host).injectable

    assert (only.device.name, only.uuid) == (f"{CARD}:1g.18gb.me:3", "MIG-3")
    assert [(node.path, node.major, node.minor) for node in only.device.container_edits.device_nodes] == [
        ("/dev/nvidia0", 195, 0),
        ("/dev/nvidia-caps/nvidia-cap10", 236, 10),
        ("/dev/nvidia-caps/nvidia-cap11", 236, 11),
    ]


def test_a_card_that_cannot_be_opened_is_left_out_with_a_reason(host: HostPaths) -> None:
    cards = [card(CARD, HERE), card(OTHER, THERE), card(None, "0000:67:00.0")]
    backend = FakeCards(cards, {THERE: (DeviceFile("/dev/nvidia7"),)})

    described = injectable_devices(backend, Edits(), host)

    assert described.injectable == ()
    assert described.problems == (
        f"The card at {HERE} is left out: it has fallen off the bus.",
        f"{OTHER} is left out: no device file at /dev/nvidia7.",
    )


def test_missing_control_files_are_left_out_and_reported(host: HostPaths) -> None:
    described = injectable_devices(FakeCards([], {}, control=_CONTROL), Edits(), host)

    assert [node.path for node in described.common.device_nodes] == ["/dev/nvidiactl"]
    assert described.problems == ("Containers go without some control files: no device file at /dev/nvidia-uvm.",)


def test_a_described_node_makes_a_valid_file(host: HostPaths) -> None:
    Tree(host.root).driver("/usr/lib64").programs("/usr/bin")
    search = DriverSearch(host=host, driver_roots=(host.root,))
    backend = FakeCards([card(CARD, HERE)], {HERE: _files(0)}, control=_CONTROL)

    described = injectable_devices(backend, container_edits(VERSION, search, hooks=True), host)

    document = msgspec.to_builtins(spec(described.devices, described.common))
    assert violations(document) == []
    assert "NVIDIA_VISIBLE_DEVICES=void" in document["containerEdits"]["env"]
    assert str(host.root) not in str(document)
