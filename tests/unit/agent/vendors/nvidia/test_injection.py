from pathlib import Path

import pytest

from gpu_control_plane.agent.cdi.edits import Edits
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.driver.library_folders import SearchContext
from gpu_control_plane.agent.vendors.nvidia.driver_files import driver_files
from gpu_control_plane.agent.vendors.nvidia.hooks import HookProgram, find_hook_program
from gpu_control_plane.agent.vendors.nvidia.injection import driver_edits
from unit.agent.driver.trees import VERSION, Tree

_HOOK = HookProgram("/usr/bin/nvidia-cdi-hook", ("nvidia-cdi-hook",))


def _edits(root: Path, hooks: HookProgram | None) -> Edits:
    tree = Tree(root / "run/nvidia/driver").driver("/usr/lib64").programs("/usr/bin")
    tree.socket("/run/nvidia-persistenced/socket")
    files = driver_files([tree.root], VERSION, SearchContext())
    return driver_edits(files, HostPaths(root), hooks)


@pytest.mark.parametrize("name", ["libcuda.so", "libcuda.so.1", f"libcuda.so.{VERSION}"])
@pytest.mark.parametrize("folder", ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"])
def test_without_hooks_every_image_finds_libraries_by_every_name(tmp_path: Path, folder: str, name: str) -> None:
    edits = _edits(tmp_path, None)

    mounts = {mount.container_path: mount.host_path for mount in edits.mounts}
    assert mounts[f"{folder}/{name}"] == f"/run/nvidia/driver/usr/lib64/libcuda.so.{VERSION}"
    assert edits.hooks == ()


def test_with_hooks_a_library_is_mounted_once_and_linked(tmp_path: Path) -> None:
    edits = _edits(tmp_path, _HOOK)

    folder = "/usr/lib/x86_64-linux-gnu"
    places = [mount.container_path for mount in edits.mounts if "libcuda" in mount.container_path]
    assert places == [f"{folder}/libcuda.so.{VERSION}"]
    links, cache = edits.hooks
    assert links.args[:2] == ("nvidia-cdi-hook", "create-symlinks")
    assert f"libcuda.so.{VERSION}::{folder}/libcuda.so.1" in links.args
    assert f"libcuda.so.{VERSION}::{folder}/libcuda.so" in links.args
    assert cache.args == ("nvidia-cdi-hook", "update-ldcache", "--folder", folder)
    assert {hook.hook_name for hook in edits.hooks} == {"createContainer"}


@pytest.mark.parametrize("hooks", [None, _HOOK], ids=["mounts", "hooks"])
def test_host_paths_are_the_host_s_and_no_place_is_mounted_twice(tmp_path: Path, hooks: HookProgram | None) -> None:
    edits = _edits(tmp_path, hooks)

    places = [mount.container_path for mount in edits.mounts]
    assert len(places) == len(set(places))
    assert all(mount.host_path.startswith("/run/nvidia/driver/") for mount in edits.mounts)
    assert all((tmp_path / mount.host_path[1:]).exists() for mount in edits.mounts)


def test_sockets_can_be_written_to_and_nothing_else_can(tmp_path: Path) -> None:
    edits = _edits(tmp_path, None)

    options = {mount.container_path: mount.options for mount in edits.mounts}
    assert options.pop("/run/nvidia-persistenced/socket") == ("nosuid", "nodev", "noexec", "rbind", "rprivate")
    assert set(options.values()) == {("ro", "nosuid", "nodev", "rbind", "rprivate")}


@pytest.mark.parametrize(
    ("programs", "found"),
    [
        ([], None),
        (["/usr/bin/nvidia-ctk"], HookProgram("/usr/bin/nvidia-ctk", ("nvidia-ctk", "hook"))),
        (["/usr/bin/nvidia-ctk", "/usr/bin/nvidia-cdi-hook"], _HOOK),
        (
            ["/usr/local/nvidia/toolkit/nvidia-cdi-hook"],
            HookProgram("/usr/local/nvidia/toolkit/nvidia-cdi-hook", ("nvidia-cdi-hook",)),
        ),
    ],
)
def test_the_hook_program_is_found_on_the_host(tmp_path: Path, programs: list[str], found: HookProgram | None) -> None:
    tree = Tree(tmp_path)
    for program in programs:
        tree.program(program)

    assert find_hook_program(HostPaths(tmp_path)) == found
