from pathlib import Path

import pytest

from gpu_control_plane.agent.backends.interface import DeviceFile
from gpu_control_plane.agent.cdi.edits import DeviceNode, device_node_edits
from gpu_control_plane.agent.cdi.injectable import read_nodes
from gpu_control_plane.agent.driver.host_paths import HostPaths
from unit.agent.cdi.builders import make_node, needs_root


@needs_root
def test_numbers_and_mode_are_read_from_the_host(tmp_path: Path) -> None:
    make_node(tmp_path / "dev/nvidia3", 3)

    nodes = read_nodes([DeviceFile("/dev/nvidia3")], HostPaths(tmp_path))

    assert nodes.missing == ()
    assert nodes.present == (
        DeviceNode(path="/dev/nvidia3", type="c", major=195, minor=3, file_mode=0o666, permissions="rw"),
    )


@needs_root
@pytest.mark.parametrize("prefixed", [False, True], ids=["host's path", "our path"])
def test_a_file_that_lies_elsewhere_keeps_the_host_s_own_path(tmp_path: Path, prefixed: bool) -> None:
    make_node(tmp_path / "run/nvidia/driver/dev/nvidia0", 0)
    source = "/run/nvidia/driver/dev/nvidia0"

    file = DeviceFile("/dev/nvidia0", f"{tmp_path}{source}" if prefixed else source)
    nodes = read_nodes([file], HostPaths(tmp_path))

    assert [(node.path, node.host_path) for node in nodes.present] == [("/dev/nvidia0", source)]


@needs_root
def test_a_file_for_a_group_brings_the_group_along(tmp_path: Path) -> None:
    make_node(tmp_path / "dev/dri/renderD128", 128, mode=0o660, group=992)
    make_node(tmp_path / "dev/nvidia0", 0, group=992)
    make_node(tmp_path / "dev/nvidia-caps/nvidia-cap1", 1, mode=0o444, group=992)

    files = [DeviceFile(f"/dev/{name}") for name in ("dri/renderD128", "nvidia0", "nvidia-caps/nvidia-cap1")]
    nodes = read_nodes(files, HostPaths(tmp_path))

    assert [node.gid for node in nodes.present] == [992, None, None]
    assert device_node_edits(nodes.present).additional_gids == (992,)


def test_what_is_no_device_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()

    nodes = read_nodes([DeviceFile("/dev/nvidia0"), DeviceFile("/dev/nvidia1")], HostPaths(tmp_path))

    assert nodes.present == ()
    assert nodes.missing == ("/dev/nvidia0", "/dev/nvidia1")


def test_a_device_file_of_this_machine_is_read() -> None:
    (null,) = read_nodes([DeviceFile("/dev/nvidia0", "/dev/null")], HostPaths()).present

    assert (null.host_path, null.type, null.major, null.minor) == ("/dev/null", "c", 1, 3)
