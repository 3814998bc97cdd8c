"""Where the host's files are for the agent, which may live in a container that has the host mounted somewhere."""

from pathlib import Path

import msgspec


class HostPaths(msgspec.Struct, frozen=True):
    """The host's file system. Both directions leave alone what is already in the right form."""

    root: Path = Path("/")
    """Where this process sees the host's `/`."""

    def here(self, path: str) -> Path:
        """Where this process finds a path of the host."""
        return Path(path) if Path(path).is_relative_to(self.root) else self.root / path.lstrip("/")

    def there(self, path: Path) -> str:
        """What the host calls a path of this process: the form for everything the container runtime will read."""
        return str(Path("/") / path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)
