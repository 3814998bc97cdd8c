"""What a container needs to use a card, in the words of CDI.

This is the one description: the specification is written from it, and so is the answer to the kubelet on nodes whose
runtime knows no CDI.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

READ_WRITE: Final = "rw"
"""Containers may use a device file, but not make others like it."""


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Absent means default: runtimes refuse files with fields that their version does not know."""


class DeviceNode(_Wire, frozen=True, kw_only=True):
    """A device file. The numbers are stored: the runtime may be unable to look them up on its own."""

    path: str
    host_path: str = ""
    """Only where it differs."""
    type: str
    major: int
    minor: int
    file_mode: int | None = None
    permissions: str = ""
    gid: int | None = None
    """The group that may use it; absent when everybody may."""


class Mount(_Wire, frozen=True, kw_only=True):
    """A file of the host that the container sees."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()


class Hook(_Wire, frozen=True, kw_only=True):
    """A program of the host that the runtime calls while it makes the container."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()


class Edits(_Wire, frozen=True, kw_only=True):
    """Everything that is changed about a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    additional_gids: tuple[int, ...] = ()


def for_nodes(nodes: Sequence[DeviceNode]) -> Edits:
    """The edits that bring device files into a container, together with the right to open them."""
    gids = sorted({node.gid for node in nodes if node.gid is not None})
    return Edits(device_nodes=tuple(nodes), additional_gids=tuple(gids))


def merged(parts: Iterable[Edits]) -> Edits:
    """All of them at once, nothing twice: two MIG instances of one card share the card's own device file."""
    taken = tuple(parts)
    return Edits(
        env=tuple(dict.fromkeys(entry for part in taken for entry in part.env)),
        device_nodes=tuple({node.path: node for part in taken for node in part.device_nodes}.values()),
        hooks=tuple(dict.fromkeys(hook for part in taken for hook in part.hooks)),
        mounts=tuple({mount.container_path: mount for part in taken for mount in part.mounts}.values()),
        additional_gids=tuple(sorted({gid for part in taken for gid in part.additional_gids})),
    )
