"""Paths of the host, for an agent that may run in a container with the host mounted somewhere."""

from pathlib import Path

import msgspec


class HostPaths(msgspec.Struct, frozen=True):
    """The host's file system. A path that is in the right form already is not changed."""

    root: Path = Path("/")
    """Where this process sees the host's `/`."""

    def local(self, path: str) -> Path:
        """The path under which this process finds a path of the host."""
        return Path(path) if Path(path).is_relative_to(self.root) else self.root / path.lstrip("/")

    def on_host(self, path: Path) -> str:
        """The host's path of a path of this process: what the container runtime must be told."""
        return str(Path("/") / path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)
