"""Whose driver it is: one that the machine brings, or one that a container brought and takes away again.

A node that brings a driver gets no driver container, so nothing is taken for the machine's that only might be. What
lies outside the host's file system, as container runtimes put it into the agent's own, is nobody's for all one can see.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.api.gpunodestate import DriverSource

_SYSTEM: Final = ("etc/os-release", "usr/lib/os-release")
"""What every system says of itself. A folder that has one of its own is the root of another system."""


class Origin(msgspec.Struct, frozen=True):
    """Where a driver comes from, None where nobody can say, and the file system it is at home in."""

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
    """The origin of a library's driver; `containers` are the roots of driver containers as far as they are known.

    All paths are as this process sees them. Wherever else a container's root was mounted, it is a system within the
    host's; folders of the host that hold nothing but a driver are not.
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
    """Whether it names a system, and not merely shows the host's once more."""
    return any((folder / file).is_file() and not _same(folder / file, host / file) for file in _SYSTEM)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
