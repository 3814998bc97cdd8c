"""A symbolic link to a node's folder: paths of sockets must be short, and those of a cluster in a home folder are long.

Only programs outside of the node need it: on the node itself, `/var/lib/kubelet` and `/run` are short enough.
"""

from pathlib import Path

from gpu_control_plane.local.store import replace_link

_FOLDER = Path("/run/gpu-nodes")
"""A longer one would leave no room for the sockets of resources with a MIG profile in their names."""


def shortcut(interface: str) -> Path:
    """The link to the folder of the node with this interface, which no other node of the host has."""
    return _FOLDER / interface


def make(interface: str, folder: Path) -> None:
    _FOLDER.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_link(shortcut(interface), folder)


def remove(interface: str) -> None:
    shortcut(interface).unlink(missing_ok=True)
