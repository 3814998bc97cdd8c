"""The device files of real cards, by the names and numbers that the kernel and the driver give them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gpu_control_plane.agent.backends.interface import BackendError, DeviceFile, Instance
from gpu_control_plane.agent.backends.sysfs import Sysfs

_DEV: Final = Path("/dev")
_CONTROL: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


class DeviceFiles:
    """The files under `dev`, which containers have under /dev."""

    def __init__(self, sysfs: Sysfs, dev: Path = _DEV, proc: Path = Path("/proc")) -> None:
        self._sysfs = sysfs
        self._dev = dev
        self._minors = proc / "driver/nvidia-caps/mig-minors"

    def control(self) -> tuple[DeviceFile, ...]:
        return self._existing(_CONTROL)

    def card(self, address: str, minor: int | None) -> tuple[DeviceFile, ...]:
        if minor is None:
            raise BackendError(f"The driver does not report which device file the card at {address} has.")
        display = self._existing(f"dri/{name}" for name in self._sysfs.drm_files(address))
        return (self._file(f"nvidia{minor}"), *display)

    def instance(self, minor: int | None, instance: Instance) -> tuple[DeviceFile, ...]:
        """The capability files of the GPU instance and of its compute instance."""
        place = f"gpu{minor}/gi{instance.gpu_instance}"
        numbers = self._capabilities()
        try:
            found = (numbers[f"{place}/access"], numbers[f"{place}/ci{instance.compute_instance}/access"])
        except KeyError as error:
            raise BackendError(f"The driver lists no capability {error} for {instance.uuid}.") from error
        return tuple(self._file(f"nvidia-caps/nvidia-cap{number}") for number in found)

    def _capabilities(self) -> dict[str, int]:
        try:
            lines = self._minors.read_text().splitlines()
        except OSError as error:
            raise BackendError(f"{self._minors} cannot be read ({error.strerror}): is the driver loaded?") from error
        pairs = (line.split() for line in lines)
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}  # noqa: PLR2004 - a name and its number

    def _existing(self, names: Iterable[str]) -> tuple[DeviceFile, ...]:
        return tuple(self._file(name) for name in names if (self._dev / name).exists())

    def _file(self, name: str) -> DeviceFile:
        return DeviceFile(str(_DEV / name), "" if self._dev == _DEV else str(self._dev / name))
