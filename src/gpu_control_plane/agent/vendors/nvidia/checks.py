"""The checks of a node with NVIDIA's cards: the driver's module, library and device files, and modules beside it."""

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import Backend, BackendError
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.vendors.interface import CheckOutcome, DriverCheck, VendorChecks, failed, passed, some
from gpu_control_plane.agent.vendors.nvidia.driver_files import find_driver_library
from gpu_control_plane.agent.vendors.nvidia.fabric import check_fabric, observe_fabric
from gpu_control_plane.agent.vendors.nvidia.status_files import FOLDER, NVIDIAStatusFiles
from gpu_control_plane.api.gpunodestate import DriverSource, StepResult

CUDA: Final = "cuda"
NVIDIA_FS: Final = "nvidia-fs"
GDRCOPY: Final = "gdrcopy"

_MODULES: Final = {NVIDIA_FS: ("nvidia_fs", "nvidia-fs0", "nvidia-fs*"), GDRCOPY: ("gdrdrv", "gdrdrv", "gdrdrv")}
"""Kernel modules beside the driver: the module, the device file that it makes, and a pattern for all of those."""
_MODULE: Final = re.compile(r"NVRM version:.*?\s(?P<version>[0-9]+(\.[0-9]+)+)\s")
_LIBRARY: Final = re.compile(r"\.so\.(?P<version>[0-9]+(\.[0-9]+)+)$")


class NVIDIAChecks(VendorChecks):
    """Checks the node's driver, and of the modules beside it those in `extras`."""

    def __init__(self, search: DriverSearch, status_files: Path | None, extras: Collection[str]) -> None:
        self._search = search
        self._extras = extras
        self.status_files = NVIDIAStatusFiles(status_files or FOLDER, search.host)

    def check_driver(self, backend: Backend) -> DriverCheck:
        facts = observe_driver(backend, find_cuda(self._search), self._search.host)
        origin = self._search.origin_of(facts.library) if facts.library else None
        outcome = check_driver(facts)
        if outcome.result is StepResult.PASSED and origin is not None and origin.source is DriverSource.HOST:
            fabric = observe_fabric(backend, self._search.host.root)
            outcome = check_fabric(fabric, facts.module) or outcome
        return DriverCheck(outcome=outcome, version=facts.module, origin=origin)

    def check_extras(self) -> Mapping[str, CheckOutcome | None]:
        root = self._search.host.root
        loaded = loaded_modules(root)
        return {
            step: check_module(module, device, loaded, device_exists=any((root / "dev").glob(pattern)))
            if step in self._extras
            else None
            for step, (module, device, pattern) in _MODULES.items()
        }


class DriverFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The driver as the node shows it."""

    version: str | None = None
    """What the driver says of itself."""
    refused: str | None = None
    """Why the backend could not open the driver; None when it could."""
    module: str | None = None
    """Version of the loaded kernel module; None where none is loaded."""
    library: Path | None = None
    """The libcuda that programs get."""
    missing_files: tuple[str, ...] = ()
    """Device files that should be there."""

    @property
    def library_version(self) -> str | None:
        """By the name of the file; by the driver's own word where that does not tell."""
        found = _LIBRARY.search(self.library.name) if self.library else None
        return found["version"] if found else self.version


def find_cuda(search: DriverSearch) -> Path | None:
    """The libcuda of the loaded driver; without one any, so that the check can say what is wrong with it."""
    version = module_version(search.host.root)
    found = find_driver_library("libcuda.so.1", search.roots, version=version) if version else None
    return found or find_driver_library("libcuda.so.1", search.roots)


def observe_driver(backend: Backend, library: Path | None, host: HostPaths) -> DriverFacts:
    """Open the backend and look at everything the driver needs; `library` is the libcuda that programs get."""
    module = module_version(host.root)
    try:
        backend.open()
        driver = backend.facts().driver
        files = [*backend.control_files()]
        for card in backend.cards():
            files += backend.device_files(card.pci.address)
    except BackendError as error:
        return DriverFacts(refused=str(error), module=module, library=library)
    missing = tuple(file.source for file in files if not host.local(file.source).exists())
    return DriverFacts(
        version=driver.version if driver else None, module=module, library=library, missing_files=missing
    )


def module_version(root: Path = Path("/")) -> str | None:
    """The version of the loaded kernel module."""
    try:
        found = _MODULE.search((root / "proc/driver/nvidia/version").read_text())
    except OSError:
        return None
    return found["version"] if found else None


def loaded_modules(root: Path = Path("/")) -> frozenset[str]:
    """The kernel modules that are loaded; none where the kernel was built without any."""
    try:
        lines = (root / "proc/modules").read_text().splitlines()
    except FileNotFoundError:
        return frozenset()
    return frozenset(line.split(maxsplit=1)[0] for line in lines if line)


def check_driver(facts: DriverFacts) -> CheckOutcome:
    """The module is loaded, its library has the same version, and everything that programs open is there."""
    module, library = facts.module, facts.library_version
    if module is None:
        return failed("The kernel module nvidia is not loaded. Install the driver, or load it with modprobe nvidia.")
    if library is not None and library != module:
        return failed(
            f"The kernel module is {module} but the driver's libraries are {library}: the driver was upgraded without "
            "a reload. Drain the node and reload the module, or restart the node."
        )
    if facts.refused is not None:
        refused = facts.refused.rstrip(".")
        return failed(f"The driver does not answer: {refused}. Look into the node's kernel log; reload the driver.")
    if facts.missing_files:
        return failed(
            f"Device files are missing: {some(facts.missing_files)}. Run nvidia-modprobe -u -c=0 on the node."
        )
    if facts.library is None:
        return failed(
            "libcuda.so.1 is not on the node. Install the driver's compute libraries, or set its root folder."
        )
    return passed(f"Driver {module} is loaded and answers.")


def check_module(module: str, device: str, loaded: Iterable[str], *, device_exists: bool) -> CheckOutcome:
    """A kernel module beside the driver is loaded and has made its device file."""
    if module not in loaded:
        return failed(f"The kernel module {module} is not loaded. Install it, or load it with modprobe {module}.")
    if not device_exists:
        return failed(f"The module {module} is loaded but /dev/{device} is missing. Reload the module.")
    return passed(f"The module {module} is loaded.")
