"""Device files as they are on the host at this moment: majors and capability minors change with every driver load."""

import os
import stat
from collections.abc import Iterable

import msgspec

from gpu_control_plane.agent.backends.interface import DeviceFile
from gpu_control_plane.agent.cdi.edits import READ_WRITE, DeviceNode
from gpu_control_plane.agent.driver.host_paths import HostPaths


class Nodes(msgspec.Struct, frozen=True):
    """The device files that are there, and the paths of those that are not."""

    present: tuple[DeviceNode, ...]
    missing: tuple[str, ...]


def read_nodes(files: Iterable[DeviceFile], host: HostPaths) -> Nodes:
    """What the host says about these device files."""
    present: list[DeviceNode] = []
    missing: list[str] = []
    for file in files:
        node = _read(file, host)
        if node is None:
            missing.append(file.source)
        else:
            present.append(node)
    return Nodes(tuple(present), tuple(missing))


def _read(file: DeviceFile, host: HostPaths) -> DeviceNode | None:
    here = host.here(file.source)
    try:
        found = here.lstat()
    except OSError:
        return None
    if not (stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)):
        return None
    there = host.there(here)
    return DeviceNode(
        path=file.path,
        host_path=there if there != file.path else "",
        type="c" if stat.S_ISCHR(found.st_mode) else "b",
        major=os.major(found.st_rdev),
        minor=os.minor(found.st_rdev),
        file_mode=stat.S_IMODE(found.st_mode),
        permissions=READ_WRITE,
        gid=found.st_gid if found.st_gid and _for_its_group(found.st_mode) else None,
    )


def _for_its_group(mode: int) -> bool:
    """Whether the group may do what not everybody may."""
    return bool((mode >> 3) & ~mode & (stat.S_IROTH | stat.S_IWOTH))
