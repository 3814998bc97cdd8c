"""A container's driver is never taken for the host's, wherever its root was put; the host's always is the host's."""

from pathlib import Path

import pytest

from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.driver.origin import DriverSearch, Origin, origin_of
from gpu_control_plane.agent.vendors.nvidia.driver_files import find_driver_library
from gpu_control_plane.agent.vendors.nvidia.status_files import DriverRoots
from gpu_control_plane.api.gpunodestate import DriverSource
from unit.agent.driver.trees import VERSION, Tree

HOST, CONTAINER = DriverSource.HOST, DriverSource.CONTAINER
DEBIAN = "/usr/lib/x86_64-linux-gnu"


@pytest.fixture
def host(tmp_path: Path) -> Tree:
    """The host as a container sees it."""
    return system(Tree(tmp_path / "host"), "flatcar")


def system(tree: Tree, name: str) -> Tree:
    return tree.file("/usr/lib/os-release", f"ID={name}".encode()).link("/etc/os-release", "../usr/lib/os-release")


def origin(host: Tree, library: str, *containers: str) -> Origin:
    return origin_of(host.at(library), host.root, [host.at(root) for root in containers])


@pytest.mark.parametrize(
    "folder",
    [
        DEBIAN,
        "/usr/lib64",
        "/opt/nvidia/lib64",
        "/usr/local/nvidia/lib64",
        "/home/kubernetes/bin/nvidia/lib64",
        "/usr/local/glibc/usr/lib",
        "/srv/gpu-stack/lib64",
    ],
)
def test_what_lies_in_folders_of_the_host_is_the_hosts(host: Tree, folder: str) -> None:
    assert origin(host, f"{folder}/libnvidia-ml.so.{VERSION}", "/run/nvidia/driver") == Origin(HOST, host.root)


@pytest.mark.parametrize("root", ["/run/nvidia/driver", "/opt/driver", "/home/kubernetes/driver", "/var/lib/a/b"])
@pytest.mark.parametrize("named", ["/etc/os-release", "/usr/lib/os-release"])
def test_what_lies_in_another_system_is_a_containers_wherever_that_was_mounted(
    host: Tree, root: str, named: str
) -> None:
    Tree(host.at(root)).file(named, b"ID=ubuntu")
    assert origin(host, f"{root}{DEBIAN}/libnvidia-ml.so.{VERSION}") == Origin(CONTAINER, host.at(root))


def test_a_root_that_is_known_needs_no_name(host: Tree) -> None:
    found = origin(host, f"/opt/driver{DEBIAN}/libnvidia-ml.so.{VERSION}", "/run/nvidia/driver", "/opt/driver")
    assert found == Origin(CONTAINER, host.at("/opt/driver"))


def test_the_host_shown_once_more_is_no_other_system(host: Tree) -> None:
    host.at("/sysroot/usr/lib").mkdir(parents=True)
    host.at("/sysroot/usr/lib/os-release").hardlink_to(host.at("/usr/lib/os-release"))
    assert origin(host, f"/sysroot/usr/lib64/libnvidia-ml.so.{VERSION}").source is HOST


def test_the_origin_outside_the_hosts_file_system_is_not_known(host: Tree, tmp_path: Path) -> None:
    """So container runtimes put a driver into the agent's own file system: the host's, or that of a container."""
    injected = tmp_path / f"usr/lib64/libnvidia-ml.so.{VERSION}"
    assert origin_of(injected, host.root, ()).source is None


def test_an_agent_on_the_host_itself_sees_the_hosts_driver() -> None:
    assert origin_of(Path(f"/usr/lib64/libnvidia-ml.so.{VERSION}")) == Origin(HOST, Path("/"))


def test_operands_are_told_the_root_of_the_driver(host: Tree) -> None:
    system(Tree(host.at("/opt/driver")), "rhel").driver("/usr/lib64")
    search = DriverSearch(host=HostPaths(host.root), driver_roots=(host.root, host.at("/opt/driver")))
    library = find_driver_library("libcuda.so.1", search.roots)
    assert library is not None
    roots = DriverRoots.of(search.origin_of(library), search.host)
    assert roots == DriverRoots(driver_root="/opt/driver", driver_root_here="/driver-root", on_host=False)


def test_a_driver_of_the_host_has_the_hosts_root(host: Tree) -> None:
    assert DriverRoots.of(Origin(HOST, host.root), HostPaths(host.root)) == DriverRoots()
