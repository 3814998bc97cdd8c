"""Device files of simulated cards: real ones that do no harm, so that a kubelet and a runtime can hand them out.

Each is a character device that behaves like /dev/null. Without a folder to keep them in there are only their names.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gpu_control_plane.agent.backends.interface import DeviceFile, Instance, NotPermitted

_NULL: Final = os.makedev(1, 3)
_MODE: Final = 0o666
_CONTROL: Final = ("nvidiactl", "nvidia-uvm")
_OURS: Final = ("nvidia*", "nvidia-caps/nvidia-cap*")

# As a real driver counts: two numbers for the whole node, then for each card fifteen instances of one and eight parts.
_FIRST_CAP: Final = 3
_CAPS_PER_INSTANCE: Final = 9
_CAPS_PER_CARD: Final = 15 * _CAPS_PER_INSTANCE


class DeviceNodes:
    """The device files under one folder."""

    def __init__(self, root: Path | None) -> None:
        self._root = root

    def control(self) -> tuple[DeviceFile, ...]:
        return tuple(self._file(name) for name in _CONTROL)

    def card(self, minor: int) -> tuple[DeviceFile, ...]:
        return (self._file(f"nvidia{minor}"),)

    def instance(self, minor: int, instance: Instance) -> tuple[DeviceFile, ...]:
        first = _FIRST_CAP + minor * _CAPS_PER_CARD + instance.gpu_instance * _CAPS_PER_INSTANCE
        numbers = (first, first + 1 + instance.compute_instance)
        return tuple(self._file(f"nvidia-caps/nvidia-cap{number}") for number in numbers)

    def provide(self, wanted: Iterable[DeviceFile]) -> None:
        """Make exactly these files exist. Only root can make device files: for others there are just the names."""
        if self._root is None or os.geteuid() != 0:
            return
        paths = {Path(file.source) for file in wanted}
        for path in paths:
            _make(path)
        for pattern in _OURS:
            for path in self._root.glob(pattern):
                if path not in paths and not path.is_dir():
                    path.unlink()

    def _file(self, name: str) -> DeviceFile:
        return DeviceFile(f"/dev/{name}", str(self._root / name) if self._root else "")


def _make(path: Path) -> None:
    if path.is_char_device() and path.stat().st_rdev == _NULL:
        return
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mknod(path, _MODE | stat.S_IFCHR, _NULL)
    except PermissionError as error:
        raise NotPermitted(f"The device file {path} cannot be made: give the agent CAP_MKNOD.") from error
    path.chmod(_MODE)
