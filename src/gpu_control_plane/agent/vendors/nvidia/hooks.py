"""NVIDIA's CDI hook program, if a toolkit is installed: it creates links and updates the linker's cache in a container.

Only the two hooks that every toolkit has since 1.13 are used: a hook that it does not have would fail the container.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from gpu_control_plane.agent.cdi.edits import Hook
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.driver.library_folders import resolved

_CREATE_CONTAINER: Final = "createContainer"
_FOLDERS: Final = ("/usr/bin", "/usr/local/nvidia/toolkit", "/usr/local/bin")
_CALLS: Final = (("nvidia-cdi-hook",), ("nvidia-ctk", "hook"))
"""The hook program of toolkit 1.15 and later before nvidia-ctk, which can do the same."""


class HookProgram(msgspec.Struct, frozen=True):
    """How the host's hook program is called."""

    path: str
    """On the host."""
    call: tuple[str, ...]
    """Its name, and the arguments before the name of the hook."""

    def links(self, links: Iterable[tuple[str, str]]) -> Hook:
        """Create links in the container, each given as target and path."""
        return self._hook("create-symlinks", "--link", (f"{target}::{place}" for target, place in links))

    def cache(self, folders: Iterable[str]) -> Hook:
        """Let the container's linker find libraries in these folders."""
        return self._hook("update-ldcache", "--folder", folders)

    def _hook(self, name: str, option: str, values: Iterable[str]) -> Hook:
        arguments = [word for value in values for word in (option, value)]
        return Hook(hook_name=_CREATE_CONTAINER, path=self.path, args=(*self.call, name, *arguments))


def find_hook_program(host: HostPaths) -> HookProgram | None:
    """The hook program of the host's toolkit; None on a node without one."""
    for call in _CALLS:
        for folder in _FOLDERS:
            path = f"{folder}/{call[0]}"
            real = resolved(host.root, host.local(path))
            if real is not None and real.is_file() and real.stat().st_mode & 0o111:
                return HookProgram(path, call)
    return None
