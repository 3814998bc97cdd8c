"""What differs between container runtimes: whether they inject devices by CDI, which handlers they have, their files.

The files of a container runtime belong to the administrator of the node. So the agent writes only what is missing,
keeps a log of it, and undoes nothing but that.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from gpu_control_plane.agent.runtimes.config_document import Entry
from gpu_control_plane.api.gpunodestate import Injection, Toolkit

OWN_FILE: Final = "99-gpu-control-plane.toml"
"""Our drop-in in the folder of the runtime: late in the order, and recognisable."""

type RunCommand = Callable[[Sequence[str]], str]
"""Runs a command on the node and returns what it prints; raises RuntimeConfigError."""

type EffectiveConfig = Mapping[str, Any]
"""The configuration that a runtime would start with; used only to compare."""


class RuntimeConfigError(Exception):
    """A runtime could not be inspected or configured; the sentence says which file or command, and why."""


class RuntimeHandler(msgspec.Struct, frozen=True):
    """A runtime handler for pods that ask for a GPU runtime by name."""

    path: str
    name: str = "nvidia"


class WantedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration of the runtime should have."""

    spec_dirs: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")
    """Folders in which it looks for CDI specs."""
    handler: RuntimeHandler | None = None
    default: bool = False
    """Whether the handler is also for containers whose pods name none."""


class RuntimeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime can do as it is configured."""

    name: str
    version: str | None
    cdi: bool
    spec_dirs: tuple[str, ...]
    handlers: tuple[str, ...]
    """The names of its runtime handlers."""
    default_handler: str | None = None
    """The one for pods that name none; None if its files do not say."""

    def missing(self, wanted: WantedConfig) -> tuple[str, ...]:
        """What is missing, in sentences."""
        missing = []
        if not self.cdi:
            missing.append(f"{self.name} does not inject devices by CDI.")
        unread = [folder for folder in wanted.spec_dirs if folder not in self.spec_dirs]
        if unread:
            missing.append(f"{self.name} does not look for CDI specifications in {', '.join(unread)}.")
        if wanted.handler and wanted.handler.name not in self.handlers:
            missing.append(f"{self.name} does not know the runtime {wanted.handler.name}.")
        if wanted.handler and wanted.default and wanted.handler.name != self.default_handler:
            missing.append(f"{self.name} does not use the runtime {wanted.handler.name} by default.")
        return tuple(missing)

    def toolkit(self) -> Toolkit | None:
        """The same for the inventory; None if the runtime cannot inject cards."""
        runtime = f"{self.name}://{self.version}" if self.version else self.name
        if self.cdi:
            return Toolkit(injection=Injection.CDI, runtime=runtime)
        if any(handler.startswith("nvidia") for handler in self.handlers):
            return Toolkit(injection=Injection.RUNTIME, runtime=runtime)
        return None


class FileEdit(msgspec.Struct, frozen=True):
    """The entries that a configuration file should have."""

    path: Path
    entries: tuple[Entry, ...]


class ContainerRuntime(Protocol):
    """A container runtime. Calls block."""

    def report(self) -> RuntimeReport:
        """What it can do with its configuration now, whether or not it was restarted since."""

    def effective(self) -> EffectiveConfig:
        """The configuration it would start with; raises RuntimeConfigError when it would not start."""

    def edits(self, wanted: WantedConfig) -> tuple[FileEdit, ...]:
        """The entries that its files should have, in the order in which they are safe to write."""
