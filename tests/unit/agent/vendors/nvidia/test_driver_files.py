from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from gpu_control_plane.agent.driver.library_folders import SearchContext, library_folders, resolved
from gpu_control_plane.agent.vendors.nvidia.driver_files import (
    DriverFiles,
    DriverNotFound,
    driver_files,
    find_driver_library,
)
from unit.agent.driver.trees import ARM, PROGRAMS, SONAMES, VERSION, Tree, ld_cache, shared_library

NOWHERE = SearchContext()
FILES = sorted(f"{name}.{VERSION}" for name in SONAMES)


def _mounts(tree: Tree, point: str, kind: str = "ext4", options: str = "ro,relatime") -> SearchContext:
    return SearchContext(f"/dev/vdb {tree.at(point)} {kind} {options} 0 0\n")


def _debian(tree: Tree) -> SearchContext:
    tree.driver("/usr/lib/x86_64-linux-gnu").programs("/usr/bin")
    return NOWHERE


def _debian_with_a_folder_of_its_own(tree: Tree) -> SearchContext:
    home = "/usr/lib/x86_64-linux-gnu/nvidia/current"
    tree.driver(home).programs("/usr/lib/nvidia/bin").link("/usr/bin/nvidia-smi", "/usr/lib/nvidia/bin/nvidia-smi")
    tree.link("/usr/bin/nvidia-debugdump", "/etc/alternatives/dump")
    tree.link("/etc/alternatives/dump", "/usr/lib/nvidia/bin/nvidia-debugdump")
    tree.link("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/etc/alternatives/cuda")
    tree.link("/etc/alternatives/cuda", f"{home}/libcuda.so.1")
    return NOWHERE


def _red_hat(tree: Tree) -> SearchContext:
    tree.driver("/usr/lib64").programs("/usr/bin").link("/lib64", "usr/lib64")
    return NOWHERE


def _read_only_mount(tree: Tree) -> SearchContext:
    tree.driver("/srv/gpu-stack/lib64").programs("/srv/gpu-stack/bin")
    return _mounts(tree, "/srv/gpu-stack")


def _image_folder(tree: Tree) -> SearchContext:
    tree.driver("/usr/local/nvidia/lib64").programs("/usr/local/nvidia/bin")
    return NOWHERE


def _single_files(tree: Tree) -> SearchContext:
    """As container runtimes mount them: no links at all."""
    tree.driver("/usr/lib/x86_64-linux-gnu", links=False).programs("/usr/bin")
    return NOWHERE


def _single_files_elsewhere(tree: Tree) -> SearchContext:
    tree.driver("/srv/injected", links=False).programs("/usr/bin")
    return _mounts(tree, f"/srv/injected/libcuda.so.{VERSION}")


def _linker_cache(tree: Tree) -> SearchContext:
    tree.driver("/opt/vendor/gpu/lib").programs("/usr/local/bin")
    tree.file("/etc/ld.so.cache", ld_cache(["/opt/vendor/gpu/lib/libcuda.so.1"]))
    return NOWHERE


LAYOUTS = [
    _debian,
    _debian_with_a_folder_of_its_own,
    _red_hat,
    _read_only_mount,
    _image_folder,
    _single_files,
    _single_files_elsewhere,
    _linker_cache,
]


@pytest.fixture(params=["host", "driver container"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    return Tree(tmp_path if request.param == "host" else tmp_path / "run/nvidia/driver")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_driver_is_found_whole_wherever_it_lies(tree: Tree, layout: Callable[[Tree], SearchContext]) -> None:
    files = driver_files([tree.root], context=layout(tree))

    assert files.version == VERSION
    assert files.triplet == "x86_64-linux-gnu"
    assert [library.path.name for library in files.libraries] == FILES
    assert {program.expected.name for program in files.binaries} == set(PROGRAMS)
    paths = [*(library.path for library in files.libraries), *(program.path for program in files.binaries)]
    assert all(path.is_file() and not path.is_symlink() and path.is_relative_to(tree.root) for path in paths)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_library_goes_by_the_name_programs_ask_for(tree: Tree, layout: Callable[[Tree], SearchContext]) -> None:
    files = driver_files([tree.root], VERSION, layout(tree))

    names = {library.path.name: set(library.names) for library in files.libraries}
    for name, soname in SONAMES.items():
        assert {f"{name}.{VERSION}", soname} <= names[f"{name}.{VERSION}"]
    assert "libcuda.so" in names[f"libcuda.so.{VERSION}"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_library_is_found_by_its_name(tree: Tree, layout: Callable[[Tree], SearchContext]) -> None:
    found = find_driver_library("libcuda.so.1", [tree.root / "absent", tree.root], layout(tree))

    assert found is not None
    assert found.name == f"libcuda.so.{VERSION}"


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert find_driver_library("libcuda.so.1", [tmp_path], NOWHERE) is None
    with pytest.raises(DriverNotFound, match=str(tmp_path)):
        driver_files([tmp_path], VERSION, NOWHERE)


@pytest.mark.parametrize("folder", ["/usr/local/cuda/compat", "/usr/local/cuda/lib64/stubs"])
def test_the_toolkit_s_own_libcuda_is_not_the_driver(tmp_path: Path, folder: str) -> None:
    tree = Tree(tmp_path).driver(folder).file("/etc/ld.so.cache", ld_cache([f"{folder}/libcuda.so.1"]))

    assert find_driver_library("libcuda.so.1", [tree.root], NOWHERE) is None


@pytest.mark.parametrize(
    ("point", "kind", "options"),
    [
        pytest.param("/var/lib/kubelet/pods/1/volumes/x", "ext4", "ro", id="a pod's volume"),
        pytest.param("/run/containerd/task/1/rootfs", "ext4", "ro", id="a container's root"),
        pytest.param("/srv/layer", "overlay", "ro", id="an image"),
        pytest.param("/srv/data", "ext4", "rw", id="writable"),
        pytest.param("/srv/share", "nfs4", "ro", id="a network share"),
    ],
)
def test_what_a_pod_could_have_put_there_is_never_taken(tmp_path: Path, point: str, kind: str, options: str) -> None:
    tree = Tree(tmp_path).driver(f"{point}/lib64")

    assert find_driver_library("libcuda.so.1", [tree.root], _mounts(tree, point, kind, options)) is None


def test_mount_points_with_blanks_are_understood(tmp_path: Path) -> None:
    tree = Tree(tmp_path).driver("/srv/my driver/lib64")
    context = SearchContext(f"none {tree.root}/srv/my\\040driver squashfs ro 0 0\n")

    assert find_driver_library("libcuda.so.1", [tree.root], context) is not None


def test_the_library_path_of_this_process_counts_for_its_own_root_alone(tmp_path: Path) -> None:
    tree = Tree(tmp_path).driver("/somewhere")
    path = str(tree.at("/somewhere"))

    assert Path(path) in library_folders(Path("/"), SearchContext(library_path=f":{path}"), ())
    assert not list(library_folders(tree.root, SearchContext(library_path=path), ()))


def test_only_the_libraries_of_the_running_driver_are_taken(tmp_path: Path) -> None:
    tree = Tree(tmp_path).driver("/usr/lib64").driver("/usr/lib/x86_64-linux-gnu", "570.10.01")

    old = driver_files([tree.root], "570.10.01", NOWHERE)

    assert {library.path.parent.name for library in old.libraries} == {"x86_64-linux-gnu"}
    assert all(library.path.name.endswith("570.10.01") for library in old.libraries)
    with pytest.raises(DriverNotFound, match="version 999"):
        driver_files([tree.root], "999.1", NOWHERE)


def test_libraries_for_another_processor_are_left_out(tmp_path: Path) -> None:
    tree = Tree(tmp_path).driver("/usr/lib64")
    tree.file(f"/usr/lib64/libnvidia-odd.so.{VERSION}", shared_library("libnvidia-odd.so.1", ARM))
    tree.file(f"/usr/lib64/libnvidia-short.so.{VERSION}", shared_library("libnvidia-short.so.1", bits=32))

    files = driver_files([tree.root], VERSION, NOWHERE)

    assert [library.path.name for library in files.libraries] == FILES


def test_a_driver_for_arm_is_found(tmp_path: Path) -> None:
    tree = Tree(tmp_path).driver("/usr/lib/aarch64-linux-gnu", machine=ARM)

    assert driver_files([tree.root], VERSION, NOWHERE).triplet == "aarch64-linux-gnu"


def test_libraries_with_versions_of_their_own_are_taken_too(tmp_path: Path) -> None:
    tree = Tree(tmp_path).driver("/usr/lib64")
    tree.file("/usr/lib64/libnvidia-egl-gbm.so.1.1.2", shared_library("libnvidia-egl-gbm.so.1"))
    tree.link("/usr/lib64/libnvidia-egl-gbm.so.1", "libnvidia-egl-gbm.so.1.1.2")

    files = driver_files([tree.root], VERSION, NOWHERE)

    gbm = next(library for library in files.libraries if "egl" in library.path.name)
    assert gbm.names == ("libnvidia-egl-gbm.so.1.1.2", "libnvidia-egl-gbm.so.1")


def test_no_two_libraries_answer_to_one_name(tmp_path: Path) -> None:
    tree = Tree(tmp_path).driver("/usr/lib64")
    for name in ("libnvidia-nvvm.so", "libnvidia-anvvm.so"):
        tree.file(f"/usr/lib64/{name}.{VERSION}", shared_library("libnvidia-nvvm.so.4"))
    tree.link("/usr/lib64/libnvidia-nvvm.so.4", f"libnvidia-nvvm.so.{VERSION}")

    files = driver_files([tree.root], VERSION, NOWHERE)

    owners = [library.path.name for library in files.libraries if "libnvidia-nvvm.so.4" in library.names]
    assert owners == [f"libnvidia-nvvm.so.{VERSION}"]


def test_a_driver_in_two_places_is_taken_once(tmp_path: Path) -> None:
    tree = Tree(tmp_path).driver("/usr/lib64").driver("/usr/local/nvidia/lib64")

    files = driver_files([tree.root], VERSION, NOWHERE)

    assert [library.path.name for library in files.libraries] == FILES


def _places(files: DriverFiles) -> list[PurePosixPath]:
    return [file.expected for file in (*files.firmware, *files.sockets, *files.config)]


def test_firmware_sockets_and_config_come_along(tree: Tree) -> None:
    tree.driver("/usr/lib64").link("/var/run", "/run").link("/lib", "/usr/lib")
    tree.file(f"/usr/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin").file("/usr/lib/firmware/nvidia/1.2/gsp_old.bin")
    tree.socket("/run/nvidia-persistenced/socket").file("/run/nvidia-fabricmanager/socket")
    tree.file("/etc/OpenCL/vendors/nvidia.icd").file("/usr/share/nvidia/nvoptix.bin")
    tree.file("/usr/share/glvnd/egl_vendor.d/10_nvidia.json").file("/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json")
    tree.file("/usr/share/vulkan/icd.d/radeon_icd.json")

    files = driver_files([tree.root], VERSION, NOWHERE)

    assert list(map(str, _places(files))) == [
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
        "/run/nvidia-persistenced/socket",
        "/etc/OpenCL/vendors/nvidia.icd",
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/usr/share/nvidia/nvoptix.bin",
        "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json",
    ]


def test_the_same_tree_gives_the_same_answer(tmp_path: Path) -> None:
    tree = Tree(tmp_path).driver("/usr/lib64").programs("/usr/bin")

    assert driver_files([tree.root], VERSION, NOWHERE) == driver_files([tree.root], None, NOWHERE)


def test_links_lead_nowhere_outside_their_root(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "root")
    tree.link("/up", "../../etc").link("/absolute", "/etc").link("/one", "two").link("/two", "one")

    assert resolved(tree.root, tree.at("/up")) == tree.at("/etc")
    assert resolved(tree.root, tree.at("/absolute")) == tree.at("/etc")
    assert resolved(tree.root, tree.at("/one")) is None


def test_a_library_of_the_loaded_driver_is_preferred_to_one_that_was_left_behind(tmp_path: Path) -> None:
    old = Tree(tmp_path / "host").driver("/usr/lib64", "535.1.2")
    new = Tree(tmp_path / "driver").driver("/usr/lib64")
    roots = [old.root, new.root]
    assert find_driver_library("libcuda.so.1", roots, NOWHERE, version=VERSION) == new.at(
        f"/usr/lib64/libcuda.so.{VERSION}"
    )
    assert find_driver_library("libcuda.so.1", roots, NOWHERE, version="1.2.3") is None
