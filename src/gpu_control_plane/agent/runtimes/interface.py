"""What every container runtime is asked, in the same words: can it inject cards by CDI, and is our runtime there?

The agent configures a runtime that belongs to somebody else. So it writes only what is missing, remembers what it
wrote, and takes back nothing but that.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from gpu_control_plane.agent.runtimes.documents import Entry
from gpu_control_plane.api.gpunodestate import Injection, Toolkit

OWN_FILE: Final = "99-gpu-control-plane.toml"
"""Our drop-in, in whatever folder the runtime reads them from: late in the order, and recognisable."""

type Run = Callable[[Sequence[str]], str]
"""Runs a command on the node and returns what it prints; raises RuntimeConfigError."""

type Effective = Mapping[str, Any]
"""The configuration a runtime would start with; only good for comparing."""


class RuntimeConfigError(Exception):
    """A runtime could not be inspected or configured; the sentence says which file or command, and why."""


class Handler(msgspec.Struct, frozen=True):
    """A GPU runtime below the container runtime, for pods that ask for one by name."""

    path: str
    name: str = "nvidia"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the runtime is to be able to do."""

    spec_dirs: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")
    """Folders in which it looks for CDI specifications."""
    handler: Handler | None = None


class RuntimeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime can do as it is configured."""

    name: str
    version: str | None
    cdi: bool
    spec_dirs: tuple[str, ...]
    handlers: tuple[str, ...]
    """The runtimes below it, by name."""

    def lacks(self, wanted: Wanted) -> tuple[str, ...]:
        """What is missing, in sentences."""
        missing = []
        if not self.cdi:
            missing.append(f"{self.name} does not inject devices by CDI.")
        unread = [folder for folder in wanted.spec_dirs if folder not in self.spec_dirs]
        if unread:
            missing.append(f"{self.name} does not look for CDI specifications in {', '.join(unread)}.")
        if wanted.handler and wanted.handler.name not in self.handlers:
            missing.append(f"{self.name} does not know the runtime {wanted.handler.name}.")
        return tuple(missing)

    def toolkit(self) -> Toolkit | None:
        """The same for the inventory; None when the runtime cannot give cards to containers."""
        runtime = f"{self.name}://{self.version}" if self.version else self.name
        if self.cdi:
            return Toolkit(injection=Injection.CDI, runtime=runtime)
        if any(handler.startswith("nvidia") for handler in self.handlers):
            return Toolkit(injection=Injection.RUNTIME, runtime=runtime)
        return None


class FileEdit(msgspec.Struct, frozen=True):
    """What a configuration file is to say."""

    path: Path
    entries: tuple[Entry, ...]


class Runtime(Protocol):
    """What differs between container runtimes. Calls block."""

    def report(self) -> RuntimeReport:
        """What it can do as it is configured now, whether or not it was restarted since."""

    def effective(self) -> Effective:
        """The configuration it would start with; raises RuntimeConfigError when it would not start."""

    def edits(self, wanted: Wanted) -> tuple[FileEdit, ...]:
        """What its files have to say, in the order in which they are safe to write."""
