"""What a container with one of NVIDIA's cards needs beside device files: above all the driver's user space.

Programs ask for `libcuda.so.1`, the file is called `libcuda.so.580.159.04`, and whether they find it depends on the
folders that the image's own linker searches. Why it is done in these two ways: docs/adr/0004-cdi-without-hooks.md.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from gpu_control_plane.agent.cdi.edits import Edits, Mount, merged
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.vendors.nvidia.driver_files import DriverFile, DriverFiles, DriverLibrary, driver_files
from gpu_control_plane.agent.vendors.nvidia.hooks import HookProgram, find_hook_program

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
_NOT_AGAIN: Final = Edits(env=(f"{VISIBLE_DEVICES}=void",))
"""Tells NVIDIA's own runtime, where it is the default, that this container has got its cards already."""

_READ_ONLY: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET: Final = ("nosuid", "nodev", "noexec", "rbind", "rprivate")


def container_edits(version: str | None, search: DriverSearch, *, hooks: bool) -> Edits:
    """Everything; `version` is that of the loaded driver, None where cards need no files of it."""
    if version is None:
        return _NOT_AGAIN
    program = find_hook_program(search.host) if hooks else None
    return merged([_NOT_AGAIN, driver_edits(driver_files(search.roots, version), search.host, program)])


def driver_edits(files: DriverFiles, host: HostPaths, hooks: HookProgram | None) -> Edits:
    """What brings the driver into a container: with the host's hook program, or by mounts alone."""
    debian = f"/usr/lib/{files.triplet}"
    others = [
        *(_mount(host, file, _READ_ONLY) for file in (*files.binaries, *files.firmware, *files.config)),
        *(_mount(host, file, _SOCKET) for file in files.sockets),
    ]
    if hooks is None:
        libraries = [mount for folder in (debian, "/usr/lib64") for mount in _by_name(host, files.libraries, folder)]
        return Edits(mounts=(*libraries, *others))
    libraries = [_library(host, library.path, debian, library.path.name) for library in files.libraries]
    links = ((library.path.name, f"{debian}/{name}") for library in files.libraries for name in library.names[1:])
    return Edits(mounts=(*libraries, *others), hooks=(hooks.links(links), hooks.cache([debian])))


def _by_name(host: HostPaths, libraries: Sequence[DriverLibrary], folder: str) -> Iterator[Mount]:
    """Every library under each of its names: what a link would do, without anybody to make one."""
    return (_library(host, library.path, folder, name) for library in libraries for name in library.names)


def _library(host: HostPaths, path: Path, folder: str, name: str) -> Mount:
    return Mount(host_path=host.on_host(path), container_path=f"{folder}/{name}", options=_READ_ONLY)


def _mount(host: HostPaths, file: DriverFile, options: tuple[str, ...]) -> Mount:
    return Mount(host_path=host.on_host(file.path), container_path=str(file.expected), options=options)
