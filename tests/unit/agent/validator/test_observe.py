"""What the validator sees of a node's CDI specification, from files as real machines have them."""

from pathlib import Path

import pytest

from gpu_control_plane.agent.cdi.edits import DeviceNode, Edits, Mount
from gpu_control_plane.agent.cdi.spec import Device, encode, spec
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.kubelet.container_runtime import RuntimeSettings
from gpu_control_plane.agent.validator.observe import observe_cdi


def write(root: Path, path: str, text: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_a_cdi_device_whose_files_do_not_exist_is_found(tmp_path: Path) -> None:
    write(tmp_path, "dev/nvidia0")
    nodes = [DeviceNode(path=f"/dev/nvidia{index}", type="c", major=195, minor=index) for index in range(2)]
    devices = [Device(f"GPU-{node.minor}", Edits(device_nodes=(node,))) for node in nodes]
    common = Edits(mounts=(Mount(host_path="/usr/lib/libcuda.so.1", container_path="/usr/lib/libcuda.so.1"),))
    path = tmp_path / "run/cdi.json"
    write(tmp_path, "run/cdi.json")
    path.write_bytes(encode(spec(devices, common)))
    found = observe_cdi(path, HostPaths(tmp_path))
    assert found.devices == {"GPU-0": ("/usr/lib/libcuda.so.1",), "GPU-1": ("/usr/lib/libcuda.so.1", "/dev/nvidia1")}
    write(tmp_path, "usr/lib/libcuda.so.1")
    assert observe_cdi(path, HostPaths(tmp_path)).devices == {"GPU-0": (), "GPU-1": ("/dev/nvidia1",)}


def test_a_cdi_file_that_is_missing_or_damaged_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "cdi.json"
    assert observe_cdi(path, HostPaths(tmp_path)).damaged is None
    path.write_text("{")
    assert str(path) in (observe_cdi(path, HostPaths(tmp_path)).damaged or "")


@pytest.mark.parametrize(
    ("folders", "unread"),
    [(None, False), (("/etc/cdi",), True), (("/etc/cdi", "/var/run/cdi"), False), (("/run/cdi/",), False)],
)
def test_whether_the_runtime_would_read_the_specification_is_its_own_word(
    folders: tuple[str, ...] | None, unread: bool
) -> None:
    settings = RuntimeSettings(cdi_enabled=False, spec_dirs=folders)
    found = observe_cdi(Path("/var/run/cdi/ours.json"), HostPaths(Path("/")), settings=settings)
    assert (found.cdi_enabled, found.unread_folder) == (False, "/var/run/cdi" if unread else None)
