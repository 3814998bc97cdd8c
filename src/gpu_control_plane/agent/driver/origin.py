"""Whose driver it is: installed on the host, or brought by a driver container.

A node with a driver of its own gets no driver container, so a driver counts as the host's only if that is certain. Of
libraries outside the host's file system, such as those that a container runtime has mounted into the agent's container,
the origin is not known.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.api.gpunodestate import DriverSource

_SYSTEM: Final = ("etc/os-release", "usr/lib/os-release")
"""Every operating system has one. A folder with one of its own is the root file system of another one."""


class Origin(msgspec.Struct, frozen=True):
    """Where a driver comes from, if that is known, and the root file system that it is installed in."""

    source: DriverSource | None
    root: Path


class DriverSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Where on this node a vendor's driver may be. All paths are as this process sees them."""

    host: HostPaths = HostPaths()
    driver_roots: tuple[Path, ...] = (Path("/"),)
    """File systems to look for a driver in, best first."""
    container_roots: tuple[Path, ...] = ()
    """Where driver containers put their file systems: looked at last. Those that are elsewhere are recognised, if they
    are among the others."""

    @property
    def roots(self) -> tuple[Path, ...]:
        """Where a driver is looked for, best first."""
        return tuple(dict.fromkeys((*self.driver_roots, *self.container_roots)))

    def origin_of(self, library: Path) -> Origin:
        """Whose driver a library belongs to."""
        return origin_of(library, self.host.root, self.container_roots)


def origin_of(library: Path, host: Path = Path("/"), containers: Iterable[Path] = ()) -> Origin:
    """The origin of a library's driver; `containers` are the known root file systems of driver containers.

    All paths are as this process sees them. A container's root that is mounted elsewhere is recognised as another
    operating system within the host's; a folder of the host that holds nothing but a driver is none.
    """
    for root in containers:
        if library.is_relative_to(root):
            return Origin(DriverSource.CONTAINER, root)
    if not library.is_relative_to(host):
        return Origin(None, host)
    for folder in library.parents:
        if folder == host:
            break
        if _is_another_system(folder, host):
            return Origin(DriverSource.CONTAINER, folder)
    return Origin(DriverSource.HOST, host)


def _is_another_system(folder: Path, host: Path) -> bool:
    """Whether it has an os-release that is not the host's own, seen through a second mount."""
    return any((folder / file).is_file() and not _same(folder / file, host / file) for file in _SYSTEM)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
