"""The files by which a node's other operands learn that a check has passed, as NVIDIA's validator leaves them."""

from pathlib import Path
from typing import Final, Self

import msgspec

from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.driver.origin import Origin
from gpu_control_plane.agent.vendors.interface import DRIVER_STEP, DriverCheck, StatusFiles
from gpu_control_plane.api.gpunodestate import DriverSource

FOLDER: Final = Path("/run/nvidia/validations")


class DriverRoots(msgspec.Struct, frozen=True, kw_only=True):
    """Where the driver is, for operands that wait for it."""

    driver_root: str = "/"
    """On the host."""
    driver_root_here: str = "/host"
    """Where a container that has the host mounted sees it."""
    dev_root: str = "/"
    dev_root_here: str = "/host"
    on_host: bool = True
    """Installed on the machine, as opposed to brought by a driver container."""

    @classmethod
    def of(cls, origin: Origin, host: HostPaths) -> Self:
        """On the host, or in the file system that a driver container brings."""
        if origin.source is not DriverSource.CONTAINER:
            return cls()
        return cls(driver_root=host.on_host(origin.root), driver_root_here="/driver-root", on_host=False)


class NVIDIAStatusFiles(StatusFiles):
    """One file for each step in a folder that the node's operands share."""

    def __init__(self, folder: Path, host: HostPaths) -> None:
        self._folder = folder
        self._host = host

    def withdraw(self, step: str) -> None:
        self._path(step).unlink(missing_ok=True)

    def publish(self, step: str, driver: DriverCheck) -> None:
        roots = DriverRoots.of(driver.origin, self._host) if driver.origin else DriverRoots()
        path = self._path(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.unfinished")
        unfinished.write_text(_variables(roots) if step == DRIVER_STEP else "")
        unfinished.replace(path)

    def _path(self, step: str) -> Path:
        return self._folder / f"{step}-ready"


def _variables(roots: DriverRoots) -> str:
    values = {
        "IS_HOST_DRIVER": "true" if roots.on_host else "false",
        "NVIDIA_DRIVER_ROOT": roots.driver_root,
        "DRIVER_ROOT_CTR_PATH": roots.driver_root_here,
        "NVIDIA_DEV_ROOT": roots.dev_root,
        "DEV_ROOT_CTR_PATH": roots.dev_root_here,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())
