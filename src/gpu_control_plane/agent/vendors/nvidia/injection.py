"""What a container with one of NVIDIA's cards needs beside device files: above all the driver's user space.

Programs load `libcuda.so.1`, the file is called `libcuda.so.580.159.04`, and whether they find it depends on the
folders that the linker of the image searches. Why there are two ways to do it: docs/adr/0004-cdi-without-hooks.md.
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
_NO_SECOND_INJECTION: Final = Edits(env=(f"{VISIBLE_DEVICES}=void",))
"""Tells NVIDIA's own runtime, if it is the default one, that this container has its cards already."""

_READ_ONLY: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET: Final = ("nosuid", "nodev", "noexec", "rbind", "rprivate")


def container_edits(version: str | None, search: DriverSearch, *, hooks: bool) -> Edits:
    """All edits; `version` is that of the loaded driver, None if cards need no files of it."""
    if version is None:
        return _NO_SECOND_INJECTION
    program = find_hook_program(search.host) if hooks else None
    return merged([_NO_SECOND_INJECTION, driver_edits(driver_files(search.roots, version), search.host, program)])


def driver_edits(files: DriverFiles, host: HostPaths, hooks: HookProgram | None) -> Edits:
    """The edits for the driver's files: with the host's hook program, or with mounts alone."""
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
    """Every library under each of its names, in place of links."""
    return (_library(host, library.path, folder, name) for library in libraries for name in library.names)


def _library(host: HostPaths, path: Path, folder: str, name: str) -> Mount:
    return Mount(host_path=host.on_host(path), container_path=f"{folder}/{name}", options=_READ_ONLY)


def _mount(host: HostPaths, file: DriverFile, options: tuple[str, ...]) -> Mount:
    return Mount(host_path=host.on_host(file.path), container_path=str(file.expected), options=options)
