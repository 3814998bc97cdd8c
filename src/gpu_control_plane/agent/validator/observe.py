"""Looks at the node for the validator: the driver's module and library, device files, the CDI specification.

Everything here reads files or calls the backend, and may block: whoever has an event loop calls it in a thread.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import Backend, BackendError
from gpu_control_plane.agent.cdi.edits import Edits
from gpu_control_plane.agent.cdi.spec import decode
from gpu_control_plane.agent.driver.host_paths import HostPaths

_MODULE: Final = re.compile(r"NVRM version:.*?\s(?P<version>[0-9]+(\.[0-9]+)+)\s")
_LIBRARY: Final = re.compile(r"\.so\.(?P<version>[0-9]+(\.[0-9]+)+)$")


class DriverFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The driver as the node shows it."""

    version: str | None = None
    """What the driver says of itself."""
    refused: str | None = None
    """Why the backend could not take hold of the driver; None when it could."""
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


class ToolkitFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What gives cards to containers."""

    runtime: str | None = None
    """A GPU runtime below the container runtime that has been seen to work."""
    damaged: str | None = None
    """Why the CDI specification cannot be read."""
    devices: Mapping[str, tuple[str, ...]] = {}
    """The devices of the CDI specification, each with the files it names that do not exist."""
    cdi_enabled: bool | None = None
    """Whether the container runtime resolves CDI names; None where that is not known."""


class PluginFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the node was ordered to offer, and what the kubelet lists."""

    ordered: frozenset[str] = frozenset()
    """Resources."""
    allocatable: Mapping[str, int] = {}
    """Units the kubelet would hand out, by resource."""


def observe_driver(backend: Backend, library: Path | None, root: Path = Path("/")) -> DriverFacts:
    """Open the backend and look at everything the driver needs. `library` is found by `find_driver_library`."""
    module = module_version(root)
    try:
        backend.open()
        driver = backend.facts().driver
        files = [*backend.control_files()]
        for card in backend.cards():
            files += backend.device_files(card.pci.address)
    except BackendError as error:
        return DriverFacts(refused=str(error), module=module, library=library)
    host = HostPaths(root)
    missing = tuple(file.source for file in files if not host.here(file.source).exists())
    return DriverFacts(
        version=driver.version if driver else None, module=module, library=library, missing_files=missing
    )


def observe_cdi(
    spec: Path, host: HostPaths, *, runtime: str | None = None, cdi_enabled: bool | None = None
) -> ToolkitFacts:
    """Whether every device of our CDI file can be resolved: all files it names exist on the host."""
    try:
        found = decode(spec.read_bytes())
    except FileNotFoundError:
        return ToolkitFacts(runtime=runtime, cdi_enabled=cdi_enabled)
    except (OSError, ValueError) as error:
        return ToolkitFacts(runtime=runtime, cdi_enabled=cdi_enabled, damaged=f"{spec}: {error}")
    common = _missing(found.container_edits, host)
    devices = {
        device.name: tuple(dict.fromkeys((*common, *_missing(device.container_edits, host))))
        for device in found.devices
    }
    return ToolkitFacts(runtime=runtime, cdi_enabled=cdi_enabled, devices=devices)


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


def devices_matching(pattern: str, root: Path = Path("/")) -> bool:
    """Whether a device file of this name exists."""
    return any((root / "dev").glob(pattern))


def _missing(edits: Edits, host: HostPaths) -> tuple[str, ...]:
    return tuple(path for path in _named(edits) if not host.here(path).exists())


def _named(edits: Edits) -> Iterable[str]:
    yield from (node.host_path or node.path for node in edits.device_nodes)
    yield from (mount.host_path for mount in edits.mounts)
    yield from (hook.path for hook in edits.hooks)
